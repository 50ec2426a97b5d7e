"""Faults that only other constants, pictures or lengths show: each beside the right port."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.pair.like import like_of
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.record import record
from resnet_fn.parity.replay import names_of
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.source import Recorded, StoredSource
from small_nets import (
    SGD,
    agrees,
    draw,
    images,
    labels,
    ladder_of,
    ours,
    record_live,
    t,
    theirs,
    torch,
    vector,
)

pytestmark = pytest.mark.usefixtures("device")


def frozen(*numbers: float) -> Parameter:
    return Parameter(Tensor(np.array(numbers, np.float32)), requires_grad=False)


def with_buffers(net, persistent: bool = True, **buffers):
    for name, numbers in buffers.items():
        net.register_buffer(name, torch.tensor(numbers), persistent)
    return net


def buffered(forward, *numbers: float):
    return with_buffers(
        theirs(forward, t.Linear(8, 8)), constant=[float(number) for number in numbers]
    )


def ported(construct, *numbers: float) -> nn.Cell:
    return ours(construct, nn.Dense(8, 8), constant=frozen(*numbers))


def constant(numbers: list[float], right, wrong, mode: str = "eval") -> tuple[Any, ...]:
    """A row of a net with a constant that has these numbers."""
    nets = buffered(right, *numbers), ported(right, *numbers), ported(wrong, *numbers)
    return (vector, *nets, mode)


def in_training(n, x):
    return n.head(n.part(x) * (n.constant if n.training else 1))


def adjusted(self, x):
    return self.head(self.part(x)) + self.constant


def normalised() -> tuple[Any, ...]:
    def forward(n, x):
        return n.head(((x - n.mean[:, None, None]) / n.std[:, None, None]).mean((2, 3)))

    def without(n, x):
        return n.head(x.mean((2, 3)) + 0 * n.mean.sum())

    reference = theirs(forward, t.Identity(), head=t.Linear(3, 3))
    right, wrong = (
        ours(construct, head=nn.Dense(3, 3), mean=frozen(0, 0, 0), std=frozen(1, 1, 1))
        for construct in (forward, without)
    )
    return images, with_buffers(reference, mean=[0.0] * 3, std=[1.0] * 3), right, wrong, "eval"


CONSTANTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "an input normaliser that is missing": normalised,
    "an adjustment of the logits that is taken away": lambda: constant(
        [0] * 3, adjusted, lambda n, x: n.head(n.part(x)) - n.constant
    ),
    "a factor of training alone": lambda: constant(
        [1] * 8, in_training, lambda n, x: n.head(n.part(x) + 0 * n.constant), "train"
    ),
    "a deviation that must be positive": lambda: constant(
        [0] * 8,
        lambda n, x: n.head(n.part(x) + n.constant.sqrt()),
        lambda n, x: n.head(n.part(x) + n.constant),
    ),
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_other_numbers_show_how_a_constant_is_used(kind):
    batch, reference, right, wrong, mode = CONSTANTS[kind]()
    agrees(right, reference, [batch()])
    stage = ladder_of(wrong, reference, [batch()]).first_stage
    assert title_of_stage(stage) == f"{mode} forward, constants drawn"
    assert any("constant at first: " in hint for hint in stage.hints)


def test_a_compiled_net_gets_the_drawn_constants_too():
    net, reference = ported(adjusted, 0, 0, 0), buffered(adjusted, 0, 0, 0)
    right = agrees(net, reference, [vector(), vector()], mode="graph")
    assert [stage.id.mode for stage in right.stages if stage.id.drawn] == ["eval", "train"]


def sized(n, x):
    """The constant has sizes of a shape."""
    return n.head(n.part(x).reshape(6, *[int(size) for size in n.constant]).reshape(6, 8))


def unused(n, x):
    return n.head(n.part(x) + 0 * n.constant.sum())


def test_a_port_that_rejects_constants_is_named():
    ladder = ladder_of(ported(sized, 2, 2, 2), buffered(unused, 2, 2, 2), [vector()])
    lines = [line for line in ladder.changes if "the port fails with random numbers" in line]
    assert len(lines) == 1, table(ladder)


def scaled_branch(n, x, function, size):
    return n.head(x + n.gamma * function(size * n.part(x)))


@pytest.mark.parametrize("trained", [True, False])
def test_a_small_layer_scale_hides_nothing(trained):
    """tanh differs by x³/3 from its argument: 1e-6 of it would be within any tolerance."""
    reference = theirs(lambda n, x: scaled_branch(n, x, torch.tanh, 0.1), t.Linear(8, 8))
    reference.gamma = t.Parameter(torch.full((8,), 1e-6), requires_grad=trained)

    def port(function) -> nn.Cell:
        gamma = Parameter(Tensor(np.full(8, 1e-6, np.float32)), requires_grad=trained)
        return ours(lambda n, x: scaled_branch(n, x, function, 0.1), nn.Dense(8, 8), gamma=gamma)

    agrees(port(ops.tanh), reference, [vector()])
    ladder = ladder_of(port(lambda x: x), reference, [vector()])
    stages = [stage for stage in ladder.stages if stage.verdict == "DIFFERS"]
    assert any(stage.id.name == "forward" and stage.id.drawn != trained for stage in stages)


def times_scale(n, x):
    return n.head(n.part(x) * n.scale)


def without_constant() -> nn.Cell:
    return ours(lambda n, x: n.head(n.part(x)), nn.Dense(8, 8))


def with_scale():
    net = theirs(times_scale, t.Linear(8, 8))
    return with_buffers(net, persistent=False, scale=[1.0] * 8)


REJECTED = "random numbers for constant arrays (constant): "


@pytest.mark.parametrize(
    ("line", "reference", "port"),
    [
        (
            REJECTED + "the reference rejects them (RuntimeError: ",
            lambda: buffered(sized, 2, 2, 2),
            lambda: ported(unused, 2, 2, 2),
        ),
        (
            REJECTED + "constant has no counterpart in the port",
            lambda: buffered(lambda n, x: n.head(n.part(x) * n.constant), *[1] * 8),
            without_constant,
        ),
        ("scale: always 1", with_scale, without_constant),
    ],
)
def test_constants_that_cannot_be_varied_have_a_line(line, reference, port):
    ladder = agrees(port(), reference(), [vector()])
    lines = ladder.coverage.not_exercised
    assert any(each.startswith(line) for each in lines), lines


def test_a_stored_trace_has_the_drawn_constants(tmp_path):
    _, reference, right, wrong, _ = CONSTANTS["an adjustment of the logits that is taken away"]()
    live = record_live(reference, plan_of(SGD, [vector()]), probes=False)
    save_recording(live.trace, tmp_path / "theirs", source=live.source)
    stored = load_recording(tmp_path / "theirs")
    recorded = Recorded(stored, StoredSource(stored))
    assert ladder_of(right, recorded).agrees
    ladder = ladder_of(wrong, recorded)
    assert ladder.first_stage.id.drawn, table(ladder)

    side = MindSporeSide(right, stored.plan)
    like = like_of(stored, names_of(side, stored), False)
    np.testing.assert_array_equal(like.drawn["constant"], stored.run.drawn[0].start["constant"])
    port: Trace = record(side, like, probes=False).trace
    assert not port.run.start["constant"].any()  # the main run keeps the constants


def tokens(n, x, swapped: bool):
    """Pictures to tokens and back, a dense layer between them, and the left part's mean."""
    count, channels, height, width = x.shape
    x = n.part(x.reshape((count, channels, height * width)).swapaxes(1, 2)).swapaxes(1, 2)
    size = (width, height) if swapped else (height, width)
    return n.head(x.reshape((count, 4, *size))[:, :, :3].mean((2, 3)))


def test_pictures_that_are_not_square_show_exchanged_axes():
    def port(swapped: bool) -> nn.Cell:
        parts = nn.Dense(3, 4), nn.Dense(4, 3)
        return ours(lambda n, x: tokens(n, x, swapped), parts[0], head=parts[1])

    reference = theirs(lambda n, x: tokens(n, x, False), t.Linear(3, 4), head=t.Linear(4, 3))
    right = agrees(port(False), reference, [images()], quick=False)
    assert {"height ≠ width", "height ≠ width, in training mode"} <= {*right.probed.agreed[""]}
    ladder = ladder_of(port(True), reference, [images()], quick=False)
    (line,) = ladder.probed.lines()
    assert "with height ≠ width: the outputs differ" in line


def test_a_net_of_fixed_size_has_a_line():
    reference = theirs(lambda n, x: n.head(x.flatten(1)), t.Identity(), head=t.Linear(192, 3))
    net = ours(lambda n, x: n.head(x.reshape(x.shape[0], -1)), nn.Identity(), head=nn.Dense(192, 3))
    ladder = agrees(net, reference, [images()], quick=False)
    (line,) = [one for one in ladder.coverage.not_exercised if "height ≠ width" in one]
    assert "the reference rejects it" in line


def test_shorter_lengths_show_that_lengths_are_ignored():
    def pooled(arange: Callable[[int], Any]):
        def forward(n, x, lengths):
            kept = (arange(8) < lengths[:, None]).float()[..., None]
            return n.head((n.part(x) * kept).sum(1) / kept.sum(1))

        return forward

    batches = [((draw(6, 8, 4), np.full(6, 8, np.int32)), labels(6))]
    reference = theirs(pooled(torch.arange), t.Linear(4, 8))
    right = agrees(ours(pooled(ops.arange), nn.Dense(4, 8)), reference, batches, quick=False)
    assert "descending lengths (inputs 1)" in right.probed.agreed[""]
    wrong = ours(lambda n, x, lengths: n.head(n.part(x).mean(1)), nn.Dense(4, 8))
    ladder = ladder_of(wrong, reference, batches, quick=False)
    assert "descending lengths (inputs 1)" in ladder.probed.lines()[0]
