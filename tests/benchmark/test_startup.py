"""The whole part, as small as it goes: processes that start anew."""

import json
import time

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
@pytest.mark.alone
def test_each_side_is_started_and_timed():
    pytest.importorskip("torch")
    began = time.perf_counter()
    flags = ["--net", "resnet20-digits", "--rounds", "1", "--threads", "1"]
    assert main(["startup", *flags, "--json", "startup.json"]) == 0
    elapsed = time.perf_counter() - began
    with open("startup.json", encoding="utf-8") as file:
        result = json.load(file)
    (ours,), (torch,) = result["seconds"]["ours"], result["seconds"]["torch"]
    assert min(ours, torch) > 1  # Python, imports and the first update of both
    assert ours + torch < elapsed
    assert result["ratio"]["torch"] == pytest.approx(torch / ours)
