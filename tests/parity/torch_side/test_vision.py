"""A torchvision that does not load is as none."""

import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.parity.pixels import reference_transform
from resnet_fn.parity.torch_side.vision import find_torchvision


@pytest.mark.parametrize("error", ["RuntimeError('operator torchvision::nms does not exist')", "ImportError"])
def test_one_that_does_not_load_is_left_out(error, monkeypatch, make_photograph, encode):
    Path("torchvision").mkdir()
    Path("torchvision/__init__.py").write_text(f"raise {error}\n")
    monkeypatch.syspath_prepend(".")
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    assert find_torchvision() is None
    transform, by = reference_transform(32, 24)
    assert by == "PIL, torchvision's steps"
    assert transform(encode(make_photograph(1))).shape == (24, 24, 3)


def test_it_is_used_where_it_loads(torchvision, make_photograph, encode):
    assert find_torchvision() is torchvision
    transform, by = reference_transform(32, 24)
    assert by == "torchvision"
    picture = encode(make_photograph(1))
    assert np.asarray(transform(picture)).shape == (24, 24, 3)
