"""scripts/audit_mindcv.py: the comparison of forward passes, which needs no net of MindCV."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import mindspore.nn as nn
import torch.nn as t

import small_nets

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
audit = importlib.import_module("audit_mindcv")


@pytest.mark.parametrize(("pads", "layer"), [({"pad_mode": "pad", "padding": 1}, ""), ({}, "part")])
def test_forward_passes_are_compared_without_an_update(pads, layer):
    reference = small_nets.Theirs(t.Conv2d(3, 8, 3, stride=2, padding=1, bias=False))
    net = small_nets.Ours(nn.Conv2d(3, 8, 3, 2, **pads))
    ladder = audit.forward_ladder(net, reference, small_nets.images()[0], None)
    assert audit.differs(ladder) == bool(layer)
    assert not layer or ladder.first_layer.name == layer
