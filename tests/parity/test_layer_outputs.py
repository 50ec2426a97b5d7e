"""The layer where two nets part is named with how it is set."""

import copy

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from resnet_fn.parity.layer_outputs import compare_layers
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.notes import settings_notes
from small_nets import cell, module

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)


@pytest.fixture
def compared(paired):
    from resnet_fn.parity.torch_side import layers_of as torch_layers_of  # imports torch, for want of which this skips

    def compare(net, module):
        """Both with the module's weights."""
        names, ours, theirs = paired(net, module, IMAGES)
        exact = copy.deepcopy(module).double()
        for mode, layers in theirs.items():
            for layer, exactly in zip(layers, torch_layers_of(exact, IMAGES, mode == "train"), strict=True):
                layer.output_rounding = relative_error(layer.output, exactly.output)
                layer.input_rounding = relative_error(layer.input, exactly.input)
        return compare_layers(ours, theirs, names.layers), settings_notes(ours["eval"], theirs["eval"], names.layers)

    return compare


def test_a_layer_that_stands_for_two_is_not_accused(compared, torch):
    """timm's BatchNormAct2d is a BatchNorm and the ReLU after it."""

    class BatchNormAct2d(torch.nn.BatchNorm2d):
        def __init__(self, features, act):
            super().__init__(features)
            self.act = act

        def forward(self, x):
            return self.act(super().forward(x))

    def verdicts(act):
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1, bias=False), BatchNormAct2d(4, act))
        net = nn.SequentialCell(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
        return [item.output.verdict for item in compared(net, module)[0] if item.mode == "eval"]

    assert verdicts(torch.nn.ReLU()) == ["ok", "ok"]
    assert verdicts(torch.nn.SiLU()) == ["ok", "DIFFERS"]


def test_a_table_in_a_part_of_its_own_is_not_held_against_the_whole_layer(compared, torch):
    """MindCV's Swin has the position table in a cell of its own, torchvision in the attention."""
    table = Parameter(Tensor(np.zeros(3), mindspore.float32), name="table")

    bias = cell(lambda self: self.table * 1.0, table=table)
    body = nn.Conv2d(3, 3, 1, has_bias=True)
    net = cell(lambda self, x: self.body(x) + self.bias().reshape((1, 3, 1, 1)), bias=bias, body=body)
    layers = {"table": torch.nn.Parameter(torch.ones(3)), "body": torch.nn.Conv2d(3, 3, 1)}
    shifted = module(lambda self, x: self.body(x) + self.table.reshape(1, 3, 1, 1), **layers)
    layers, _ = compared(net, module(lambda self, x: self.bias(x), bias=shifted))
    assert [item.name for item in layers if item.mode == "eval"] == ["body"]
    assert {item.output.verdict for item in layers} <= {"ok", "rounding"}
