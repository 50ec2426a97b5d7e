"""State that training moves, beside weights: outputs in evaluation mode after the updates, with the same weights."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import small_nets
from resnet_fn.parity.replay import replay
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Task
from resnet_fn.parity.trace_folder import load_recording, save_recording
from small_nets import SGD, ladder_of, t, torch

pytestmark = pytest.mark.usefixtures("device")

STAGE = "eval forward after the updates"
RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(1, 1, (6, 8)).astype(np.float32), np.array([0, 1, 2] * 2, np.int32)) for _ in range(3)]


class Theirs(torch.nn.Module):
    """Training centres features by a batch's mean, evaluation by a mean of old ones, if it is `read` there."""

    def __init__(self, read="evaluation", persistent=True):
        super().__init__()
        self.first, self.head, self.read = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3), read
        self.register_buffer("center", torch.zeros(8), persistent)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        x = self.first(x)
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.5).add_(0.5 * x.mean(0))
                self.calls += 1
        mode = "training" if self.training else "evaluation"
        if self.read == mode:
            x = x + 1e-3 * self.center
        return self.head(x)


class Ours(nn.Cell):
    def __init__(self, read="evaluation", name="center", keep=0.5):
        super().__init__()
        self.first, self.head, self.read, self.keep = nn.Dense(8, 8), nn.Dense(8, 3), read, keep
        self.state = None
        if name:
            setattr(self, name, Parameter(Tensor(np.zeros(8, np.float32)), name=name, requires_grad=False))
            self.state = getattr(self, name)

    def construct(self, x):
        x = self.first(x)
        if self.state is not None:
            if self.training:
                ops.assign(self.state, self.keep * self.state + (1 - self.keep) * ops.stop_gradient(x.mean(0)))
            if (self.read == "training") == self.training:
                x = x + 1e-3 * self.state
        return self.head(x)


def climb(theirs, ours):
    return ladder_of(ours, theirs, BATCHES, quick=True, mode="pynative")


def stage_of(ladder):
    (stage,) = [stage for stage in ladder.stages if stage.name == STAGE]
    return stage


@pytest.mark.parametrize(("persistent", "name"), [(True, "center"), (True, "average"), (False, "average")])
def test_state_that_moves_alike_agrees_under_any_name(persistent, name):
    ladder = climb(Theirs(persistent=persistent), Ours(name=name))
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder).verdict == "ok"
    assert not [line for line in ladder.changed if "calls" in line]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_that_only_the_reference_moves_and_reads_differs(persistent):
    ladder = climb(Theirs(persistent=persistent), Ours(name=None))
    assert [stage.name for stage in ladder.stages if stage.verdict == "DIFFERS"] == [STAGE], table(ladder)
    assert ladder.first_stage.hints[0].startswith("center: training moves it in the reference")


def test_state_that_moves_otherwise_differs_by_the_outputs():
    """Under another name: no stage compares the arrays."""
    ladder = climb(Theirs(persistent=False), Ours(name="average", keep=0.9))
    assert [stage.name for stage in ladder.stages if stage.verdict == "DIFFERS"] == [STAGE], table(ladder)


@pytest.mark.parametrize("read", ["", "training"])
def test_a_buffer_that_moves_and_is_not_read_in_evaluation_is_a_line(read):
    ladder = climb(Theirs(read, persistent=False), Ours(name=None))
    assert stage_of(ladder).verdict == "ok", table(ladder)
    assert "center: training moves it in the reference; it has no counterpart here" in ladder.changed
    assert read or ladder.agrees


def test_weights_are_the_reference_s_and_statistics_each_side_s(tmp_path):
    """By torch itself: evaluation with the reference's last weights and the statistics of this side."""
    from resnet_fn.parity.torch_side import record_reference

    def net(momentum: float) -> nn.Cell:
        return small_nets.Ours(nn.BatchNorm1d(8, momentum=momentum))

    reference = record_reference(small_nets.Theirs(t.BatchNorm1d(8)), Task(SGD, BATCHES), probes=False)
    item = stage_of(replay(reference, net(0.8), initialisation=False, quick=True, mode="pynative")).differences[0]
    start, last = reference.trace.start, reference.trace.after[-1]
    module = small_nets.Theirs(t.BatchNorm1d(8))
    module.load_state_dict({name: torch.from_numpy(value) for name, value in last.items()}, strict=False)
    with torch.no_grad():
        module.part.running_mean.copy_(torch.from_numpy(start["part.running_mean"]))
        module.part.running_var.copy_(torch.from_numpy(start["part.running_var"]))
        module.part.momentum = 0.2
        for images, _ in BATCHES:
            module.part.train()(torch.from_numpy(images))
        outputs = module.eval()(torch.from_numpy(BATCHES[0][0]))
    assert item.verdict == "DIFFERS"
    assert item.ours == pytest.approx(float(outputs[item.place]), rel=1e-5)

    save_recording(reference, tmp_path / "trace")
    loaded = load_recording(tmp_path / "trace")
    assert replay(loaded, net(0.9), initialisation=False, quick=True, mode="pynative").agrees
