"""The whole part, beside PyTorch."""

import json

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
@pytest.mark.alone
def test_the_step_beside_pytorchs():
    pytest.importorskip("torch")
    assert main(["step", "--net", "resnet20-digits", "--rounds", "1", "--json", "step.json"]) == 0
    with open("step.json", encoding="utf-8") as file:
        result = json.load(file)
    assert result["ratio"]["torch"] > 0
    peaks = result["peak_mib"]
    assert result["memory"]["torch"] == pytest.approx(peaks["ours"] / peaks["torch"])
    assert min(peaks.values()) > 100  # each has imported a whole library
