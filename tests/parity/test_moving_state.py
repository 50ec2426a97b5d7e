"""State that training moves, beside weights: outputs in evaluation mode after the updates, with the
same weights.
"""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.replay import replay
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.source import Recorded, StoredSource
from small_nets import (
    SGD,
    Ours,
    Theirs,
    ladder_of,
    ours,
    record_reference,
    stage_of,
    t,
    theirs,
    torch,
)

pytestmark = pytest.mark.usefixtures("device")

STAGE = "eval forward after the updates"
RNG = np.random.default_rng(0)
BATCHES = [
    (RNG.normal(1, 1, (6, 8)).astype(np.float32), np.array([0, 1, 2] * 2, np.int32))
    for _ in range(3)
]


def reference(read="evaluation", persistent=True):
    """Training centres features by a batch's mean, evaluation by a mean of old ones, if it is
    `read` there.
    """

    def forward(self, x):
        x = self.first(x)
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.5).add_(0.5 * x.mean(0))
                self.calls += 1
        if read == ("training" if self.training else "evaluation"):
            x = x + 1e-3 * self.center
        return self.head(x)

    module = theirs(forward, first=t.Linear(8, 8))
    module.register_buffer("center", torch.zeros(8), persistent)
    module.register_buffer("calls", torch.zeros(()))
    return module


def port(name="", keep=0.5):
    """Its state has this name, or there is none."""

    def construct(self, x):
        x = self.first(x)
        if name and self.training:
            state = getattr(self, name)
            ops.assign(state, keep * state + (1 - keep) * ops.stop_gradient(x.mean(0)))
        elif name:
            x = x + 1e-3 * getattr(self, name)
        return self.head(x)

    state = {name: Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)} if name else {}
    return ours(construct, first=nn.Dense(8, 8), **state)


@pytest.mark.parametrize(
    ("persistent", "name"), [(True, "center"), (True, "average"), (False, "average")]
)
def test_state_that_moves_alike_agrees_under_any_name(persistent, name):
    ladder = ladder_of(port(name), reference(persistent=persistent), BATCHES)
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder, STAGE).verdict == "ok"
    assert not [line for line in ladder.changed if "calls" in line]


@pytest.mark.parametrize(("persistent", "name"), [(True, ""), (False, ""), (False, "average")])
def test_state_that_moves_in_the_reference_only_or_otherwise_differs_by_the_outputs(
    persistent, name
):
    """Under another name no stage compares the arrays."""
    ladder = ladder_of(port(name, keep=0.9), reference(persistent=persistent), BATCHES)
    assert [title_of_stage(stage) for stage in ladder.stages if stage.verdict == "DIFFERS"] == [
        STAGE
    ], table(ladder)
    assert name or ladder.first_stage.hints[0].startswith(
        "center: training moves it in the reference"
    )


@pytest.mark.parametrize(
    ("read", "words"), [("", "no output"), ("training", "outputs in training mode")]
)
def test_a_buffer_that_moves_and_is_not_read_in_evaluation_is_a_line(read, words):
    ladder = ladder_of(port(), reference(read, persistent=False), BATCHES)
    assert stage_of(ladder, STAGE).verdict == "ok", table(ladder)
    (line,) = [line for line in ladder.changed if line.startswith("center: ")]
    assert f"changes {words}" in line
    assert read or ladder.agrees


def test_weights_are_the_reference_s_and_statistics_each_side_s(tmp_path):
    """By torch itself: evaluation with the reference's last weights and the statistics of this
    side.
    """

    def stage(recording: Trace, momentum: float) -> Stage:
        net = Ours(nn.BatchNorm1d(8, momentum=momentum))
        return stage_of(
            replay(
                Recorded(recording, StoredSource(recording)),
                net,
                initialisation=False,
                quick=True,
                mode="pynative",
            ),
            STAGE,
        )

    recording = record_reference(Theirs(t.BatchNorm1d(8)), plan_of(SGD, BATCHES), probes=False)
    item = stage(recording, 0.8).differences[0]
    start, last = recording.run.start, recording.run.after[-1]
    module = Theirs(t.BatchNorm1d(8))
    module.load_state_dict(
        {name: torch.from_numpy(value) for name, value in last.items()}, strict=False
    )
    with torch.no_grad():
        module.part.running_mean.copy_(torch.from_numpy(start["part.running_mean"]))
        module.part.running_var.copy_(torch.from_numpy(start["part.running_var"]))
        module.part.momentum = 0.2
        for images, _ in BATCHES:
            module.part.train()(torch.from_numpy(images))
        outputs = module.eval()(torch.from_numpy(BATCHES[0][0]))
    assert item.verdict == "DIFFERS"
    assert item.port == pytest.approx(float(outputs[item.place]), rel=1e-5)

    save_recording(recording, tmp_path / "trace")
    loaded = load_recording(tmp_path / "trace")
    assert stage(loaded, 0.9).verdict == "ok"
    loaded.run.last_outputs = {}  # as in a trace that was recorded before there was such a stage
    skipped = stage(loaded, 0.8)
    assert skipped.verdict == "undecided"
    assert "record it again" in skipped.note
