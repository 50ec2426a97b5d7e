"""Right ports that differ because of MindSpore's compiler and kernels: the cause is named."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.record.kernel_faults import FAULTS, kernel_faults
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import Ours, Theirs, cell, draw, images, labels, ladder_of, module, t, torch, vector

pytestmark = pytest.mark.usefixtures("device")

LIVE = {"mode": "graph", "quick": False}


class Padded(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        return ops.pad(x, (1, 1, 1, 1))


def padded_pair():
    reference = Theirs(
        t.Conv2d(3, 8, 3), module(lambda self, x: torch.nn.functional.pad(x, (1, 1, 1, 1)))
    )
    net = Ours(
        nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True),
        Padded(),
    )
    return net, reference


def test_graph_mode_alone_is_the_cause():
    ladder = ladder_of(*padded_pair(), [images() for _ in range(3)], **LIVE)
    assert title_of_stage(ladder.first_stage) == "gradients, later batches"
    (line,) = ladder.first_stage.hints
    assert line.startswith(
        "graph mode alone differs: not compiled, this stage agrees (--mode pynative); MindSpore 2"
    )
    assert "from the second call on, the gradient of ops.pad is" in line
    assert not ladder_of(*padded_pair(), [images() for _ in range(3)]).first_stage
