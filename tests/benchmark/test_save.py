"""What a checkpoint costs."""

import json
import os

import pytest

from resnet_fn.benchmark.__main__ import main


@pytest.mark.slow
def test_a_save_a_plain_write_and_a_stall_of_each_round():
    os.mkdir("disk")
    assert main(["save", "--rounds", "2", "--folder", "disk", "--json", "save.json"]) == 0
    with open("save.json", encoding="utf-8") as file:
        result = json.load(file)
    assert result["bytes"] == 4 * (2 * 25_557_032 + 53_120)  # torchvision's count; momentum; BatchNorm's statistics
    assert [len(seconds) for seconds in result["seconds"].values()] == [2, 2, 2]
    assert max(result["seconds"]["stall"]) < min(result["seconds"]["save"])
    assert os.listdir("disk") == []
