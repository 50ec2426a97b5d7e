"""The whole part, as small as it goes."""

import json
import statistics

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
def test_two_micro_batches_beside_one():
    flags = ["--net", "resnet20-digits", "--accumulate", "2", "--rounds", "5", "--threads", "1"]
    assert main(["accumulation", *flags, "--json", "accumulation.json"]) == 0
    with open("accumulation.json", encoding="utf-8") as file:
        result = json.load(file)
    one, several = (statistics.median(result["seconds_per_sample"][name]) for name in ("one", "several"))
    assert result["cost"] == pytest.approx(several / one)
    assert 0.4 < result["cost"] < 2  # 0.9; 2.4 to 5 where a micro-batch's call waits for the one before by spinning
    assert result["gradient_bytes"] == 4 * 272_474
    peaks = result["peak_bytes"]
    assert result["memory"] == pytest.approx(peaks["several"] / (peaks["one"] + 4 * 272_474))
