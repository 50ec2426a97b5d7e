"""The whole part, as small as it goes."""

import importlib.util
import json

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
def test_every_pipeline_is_measured(capsys):
    assert main(["data", "--images", "64", "--rounds", "1", "--json", "data.json"]) == 0
    with open("data.json", encoding="utf-8") as file:
        result = json.load(file)
    assert {"imagefolder", "mindrecord", "cifar", "cifar, trivialaugment"} <= set(result["rates"])
    assert all(rate > 0 for rate in result["rates"].values())
    compares = importlib.util.find_spec("torch") is not None
    assert ("ratios" in result) == compares
    assert (
        "no comparison: PyTorch is not installed; pip install 'resnet_fn[torch]'" in capsys.readouterr().out
    ) != compares
