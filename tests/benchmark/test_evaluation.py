"""The whole part, as small as it goes."""

import json

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
def test_evaluation_beside_the_forward_pass():
    flags = ["--net", "resnet20-digits", "--samples", "70", "--rounds", "3", "--threads", "1"]
    assert main(["evaluation", *flags, "--json", "evaluation.json"]) == 0
    with open("evaluation.json", encoding="utf-8") as file:
        result = json.load(file)
    assert result["samples"] == 70
    evaluation, forward = (sorted(result["seconds"][name])[1] for name in ("evaluation", "forward"))
    assert result["ratio"]["forward"] == pytest.approx(forward / evaluation)
