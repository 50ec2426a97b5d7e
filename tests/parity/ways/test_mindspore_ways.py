"""One MindSpore cell in two ways: right ones agree, and each fault is named by its own way."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.ways.mindspore_net import MindSporeNet


class Dense(nn.Cell):
    """Two dense layers with something between."""

    def __init__(self, middle: Any = None, between: int = 8) -> None:
        super().__init__()
        self.first, self.middle = nn.Dense(8, 8), middle or nn.ReLU()
        self.last = nn.Dense(between, 3)

    def construct(self, x: Any) -> Any:
        return self.last(self.middle(self.first(x)))


class Residual(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        options = {"pad_mode": "pad", "padding": 1}
        self.stem, self.bn1 = nn.Conv2d(3, 8, 3, **options), nn.BatchNorm2d(8)
        self.conv, self.bn2 = nn.Conv2d(8, 8, 3, **options), nn.BatchNorm2d(8)
        self.head = nn.Dense(8, 3)

    def construct(self, x: Any) -> Any:
        x = ops.relu(self.bn1(self.stem(x)))
        return self.head(ops.relu(x + self.bn2(self.conv(x))).mean((2, 3)))


class Attention(nn.Cell):
    def __init__(self, hides: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8, embedding_table="normal")
        self.q, self.k, self.v = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)
        self.norm, self.head, self.hides = nn.LayerNorm((8,)), nn.Dense(8, 3), hides

    def construct(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.embed(ids))
        scores = ops.bmm(self.q(x), self.k(x).swapaxes(1, 2))
        if self.hides:
            scores = ops.masked_fill(scores, ops.logical_not(mask).expand_dims(1), -1e4)
        x = x + ops.bmm(ops.softmax(scores, -1), self.v(x))
        weights = mask.expand_dims(2).astype(x.dtype)
        return self.head((x * weights).sum(1) / weights.sum(1))


class Centred(nn.Cell):
    def construct(self, x: Any) -> Any:
        return x - x.mean(0)


class Counting(nn.Cell):
    """Counts its calls in training mode in a list, which compiled code does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [0]

    def construct(self, x: Any) -> Any:
        if self.training:
            self.calls[0] += 1
        return x * (1 + self.calls[0])


class Moving(nn.Cell):
    """Moves a parameter in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Parameter(Tensor(np.zeros(1, np.float32)), requires_grad=False)

    def construct(self, x: Any) -> Any:
        if not self.training:
            ops.assign_add(self.count, Tensor([1.0], mindspore.float32))
        return x * (1 + self.count)


class Unsafe(nn.Cell):
    """A softmax whose numbers are beyond float16."""

    def construct(self, x: Any) -> Any:
        e = 1e6 * ops.exp(x)
        return e / e.sum(-1, keepdims=True)


def summed(outputs: Any, labels: Any) -> Any:
    return ops.cross_entropy(outputs, labels, reduction="sum")


@pytest.mark.parametrize(
    ("build", "data", "left_out"),
    [
        (Residual, "images", {"unpadded", "micro-batches"}),
        (Attention, "texts", set()),
    ],
)
def test_right_nets_are_accepted(build, data, left_out, batches, plan, result):
    net = MindSporeNet(build(), plan(batches[data]))
    for way in ("repeated", "alone", "unpadded", "restored", "micro-batches", "half"):
        one = result(way, net, half="float16")
        if way in left_out:
            assert one.skipped.startswith("not ")
        else:
            assert one.verdict in ("ok", "rounding"), (way, one)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "data"), [(Residual, "images"), (Attention, "texts")])
def test_right_nets_compute_the_same_compiled(build, data, batches, plan, result):
    assert result("compiled", MindSporeNet(build(), plan(batches[data]))).verdict == "ok"


def test_a_layer_that_mixes_samples_is_named(plan, result):
    one = result("alone", MindSporeNet(Dense(Centred()), plan()))
    assert (one.verdict, title_of_stage(one.first_stage)) == ("DIFFERS", "eval forward")
    assert one.first_layer.name == "middle"


def test_an_ignored_mask_shows_without_padding(batches, plan, result):
    net = MindSporeNet(Attention(hides=False), plan(batches["texts"]))
    assert result("alone", net).verdict == "ok"
    assert result("unpadded", net).verdict == "DIFFERS"


def test_an_evaluation_that_moves_state_is_named(plan, result):
    one = result("repeated", MindSporeNet(Dense(Moving()), plan()))
    assert one.first_stage.first.name == "middle.count"
    assert one.first_layer.name == "middle"


def test_state_outside_the_checkpoint_is_not_restored(plan, result):
    net = MindSporeNet(Dense(Counting()), plan())
    assert result("repeated", net).verdict == "ok"
    one = result("restored", net)
    assert (one.verdict, one.first_layer.name) == ("DIFFERS", "middle")


def test_a_summed_loss_differs_in_micro_batches(plan, result):
    one = result("micro-batches", MindSporeNet(Dense(), plan(custom_loss=True), summed))
    assert title_of_stage(one.first_stage) == "loss"
    assert "1/2" in one.notes[0]


class Named(nn.Dense):
    """Returns something beside its output that is no tensor."""

    def construct(self, x: Any) -> Any:
        return super().construct(x), (row for row in x)


def test_outputs_that_are_not_read_are_undecided(plan, result):
    net = MindSporeNet(Named(8, 3), plan())
    for way in ("repeated", "alone"):
        (stage,) = [one for one in result(way, net).stages if one.verdict == "undecided"]
        assert "logits 1 (generator)" in stage.undecided, way


def test_an_overflow_is_not_explained_by_precision(plan, result):
    net = MindSporeNet(Dense(Unsafe()), plan())
    one = result("half", net, half="float16")
    assert (one.words, one.first_layer.name) == ("explained: no", "middle")
    assert result("half", net, half="bfloat16").skipped  # a CPU has no kernels
    assert result("alone", net).verdict == "ok"  # float32 again


def test_compiled_code_that_keeps_a_count_differs(plan, result):
    one = result("compiled", MindSporeNet(Dense(Counting()), plan()))
    assert one.verdict == "DIFFERS"
    assert title_of_stage(one.first_stage) == "loss trajectory"


PADDING = """
import sys
from pathlib import Path
from mindspore import nn, ops

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(192, 8), nn.Dense(10, 3)

    def construct(self, x):
        return self.last(ops.pad(ops.relu(self.first(x.reshape(x.shape[0], -1))), (1, 1)))
"""


@pytest.mark.slow
def test_compiled_gradients_are_compared_from_call_two():
    """In a process of its own: MindSpore's wrong gradient may also never return."""
    Path("padding.py").write_text(PADDING)
    flags = ["--ways", "compiled", "--image-size", "8", "--num-classes", "3"]
    command = [sys.executable, "-m", "resnet_fn.parity", "self", "padding.py:Net", *flags]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        pytest.skip("MindSpore's gradient of ops.pad does not return")
    assert made.returncode == 1, made.stderr
    words = " ".join(made.stdout.split())
    assert "compiled, first stage that differs: gradients, later batches" in words
    assert "from the second call on, the gradient of ops.pad is wrong" in words
