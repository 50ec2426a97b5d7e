"""The whole part: a net of which all but the last layer is frozen takes less than half the time."""

import json

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
def test_frozen_parts_cost_no_backward_pass():
    flags = ["--net", "resnet20-digits", "--rounds", "3", "--freeze", "stem,layer?", "--json", "freeze.json"]
    assert main(["freeze", *flags]) == 0
    with open("freeze.json", encoding="utf-8") as file:
        result = json.load(file)
    assert list(result["step_seconds"]) == ["nothing", "stem,layer?"]
    assert result["ratio"]["stem,layer?"]["median"] > 2
