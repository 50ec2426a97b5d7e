"""Workers started by the launcher, measured at once."""

import json

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
@pytest.mark.alone
def test_two_workers():
    assert main(["allreduce", "--net", "resnet20-digits", "--rounds", "1", "--json", "allreduce.json"]) == 0
    with open("allreduce.json", encoding="utf-8") as file:
        result = json.load(file)
    assert (result["workers"], result["samples"]) == (2, 64)
    assert result["efficiency"] + result["share"] == pytest.approx(1)
    assert result["one_process_step_seconds"] > 0
    alone, shared = result["one_worker_step_seconds"], result["shared_step_seconds"]
    assert result["weak_scaling"] == pytest.approx(alone / shared)
