"""Both ways in turns, for each shape that is asked for."""

import json
import re

import numpy as np
import pytest

from resnet_fn.benchmark.__main__ import main
from resnet_fn.config.cli import UsageError
from resnet_fn.models.winograd import LEAST_CHANNELS


def test_each_shape_both_ways(capsys):
    flags = ["--shapes", "2x16x8, 1x32x5", "--rounds", "3", "--threads", "1", "--json", "layer.json"]
    assert main(["layer", *flags]) == 0
    with open("layer.json", encoding="utf-8") as file:
        result = json.load(file)
    assert list(result["seconds"]) == list(result["ratio"]) == ["2x16x8", "1x32x5"]
    for name, seconds in result["seconds"].items():
        rounds = np.divide(seconds["mindspore"], seconds["ours"])
        assert result["ratio"][name]["median"] == pytest.approx(np.median(rounds))
    assert re.search(r"^  1x32x5 +[\d.]+ \[[\d.]+, [\d.]+\]$", capsys.readouterr().out, re.M)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("32x64", "--shapes: '32x64' is no shape; give SAMPLESxCHANNELSxSIZE, as 32x64x32"),
        ("8x64x56,0x64x5", "--shapes: '0x64x5' is no shape; give SAMPLESxCHANNELSxSIZE, as 32x64x32"),
        ("32x15x32", "--shapes: '32x15x32' has 15 channels, too few for Winograd's filtering; give 16 or more"),
    ],
)
def test_what_is_no_shape_is_refused(shapes, message):
    assert LEAST_CHANNELS == 16  # as the message says
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        main(["layer", "--shapes", shapes])
