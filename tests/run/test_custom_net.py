"""What a net holds besides its trained weights: buffers, frozen Parameters, attributes."""

import shutil
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.checkpoint.folder import load_checkpoint, write_checkpoint
from resnet_fn.run.failures import NotFiniteError
from resnet_fn.run.fit import fit
from resnet_fn.weights.load import load_weights

pytestmark = pytest.mark.usefixtures("device")

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
SETTINGS = {"batch_size": 16, "epochs": 2, "learning_rate": 0.01, "progress": False}
SETTINGS |= {"checkpoint_every": 3, "keep_last": 9}


class Counting(nn.Cell):
    """Counts its training calls in a buffer, which scales the outputs."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.register_buffer("calls", Tensor(np.zeros(1, np.float32)))

    def construct(self, x):
        if self.training:
            self.calls.copy_(self.calls + 1.0)
        return self.dense(x) * (1.0 + 0.1 * self.calls)


class Masked(nn.Cell):
    """Adds a constant to the inputs' products, of which some are -infinity."""

    def __init__(self, mask=-np.inf, dtype=mindspore.float32, weight=0.0):
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.dense.bias.set_data(Tensor([weight, 0], mindspore.float32))
        self.mask = Parameter(Tensor([0.0, mask, 0.0], dtype), name="mask", requires_grad=False)

    def construct(self, x):
        return self.dense(ops.softmax(x + self.mask.astype(mindspore.float32)))


def train(net, out_dir, **changes):
    """Uncompiled, which is quicker, unless `changes` has a mode."""
    settings = {**SETTINGS, "out_dir": out_dir, "mode": "pynative", **changes}
    return fit(net, (X, Y), (X, Y), **settings)


@pytest.fixture
def cut(cut_after):
    """cut(run) copies a run to "cut", as it was after update 3, within its first epoch."""

    def copy(whole):
        shutil.copytree(whole, "cut")
        cut_after("cut", 3)

    return copy


@pytest.fixture(scope="module")
def counted(tmp_path_factory, device):
    """A whole run of `Counting`, not to be changed."""
    mindspore.set_seed(1)
    return train(Counting(), str(tmp_path_factory.mktemp("run") / "run"))


def test_a_buffer_is_saved_and_resumed(counted, cut, last_state):
    cut(counted.run)
    net = Counting()
    train(net, "cut")
    assert net.calls.numpy() == 8
    assert last_state("cut") == last_state(counted.run)
    load_weights(net, "cut/checkpoints/step-00000003")
    assert net.calls.numpy() == 3


def test_a_checkpoint_without_the_buffer_resumes(counted, cut, capsys):
    """Version f4bba1ad saved no buffers."""
    cut(counted.run)
    old = load_checkpoint(Path("cut/checkpoints/step-00000003"))
    del old.weights["calls"]
    write_checkpoint(old.path, old.weights, old.training, old.state)
    net = Counting()
    train(net, "cut")
    assert "the checkpoint has no values of the buffers calls" in capsys.readouterr().out
    assert net.calls.numpy() == 8 - 3


def test_a_mask_with_infinity_is_saved_and_resumed(cut, last_state):
    mindspore.set_seed(1)
    whole = train(Masked(), "whole")
    cut(whole.run)
    train(Masked(), "cut")
    assert last_state("cut") == last_state("whole")
    net = Masked()
    load_weights(net, "whole")
    assert net.mask.numpy()[1] == -np.inf


def test_infinity_that_the_net_lacks_is_rejected(raises_line):
    train(Masked(), "run", epochs=1)
    with raises_line("step-00000004", "1 of 3 values of mask", "give other weights"):
        load_weights(Masked(0.0), "run")


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ({"dtype": mindspore.complex64}, ("net: mask: dtype complex64", "use one of")),
        ({"dtype": mindspore.bfloat16}, ("net: mask: dtype bfloat16", "use one of")),
        ({"mask": np.nan}, ("net: mask contains NaN", "give finite")),
        ({"weight": -np.inf}, ("net: dense.bias contains", "give finite")),
    ],
)
def test_what_no_checkpoint_can_hold_is_rejected(fault, parts, raises_line):
    with raises_line(*parts):
        train(Masked(**fault), "run")
    assert not Path("run").exists()


def test_two_parameters_of_one_name_are_rejected(raises_line):
    net = nn.SequentialCell(nn.Dense(3, 3), nn.Dense(3, 2))
    net[1].bias.name = "0.bias"
    with raises_line("net: several", "the name 0.bias", "give each"):
        train(net, "run")


class Remembering(nn.Cell):
    """Counts in an attribute, keeps the latest batch in another, and never changes a third."""

    def __init__(self):
        super().__init__()
        self.dense, self.calls, self.latest, self.still = nn.Dense(3, 2), 0, Tensor([0.0]), 5

    def construct(self, x):
        if self.training:
            self.calls = self.calls + 1
            self.latest = x
        return self.dense(x)


def line_with(word, capsys):
    (line,) = [line for line in capsys.readouterr().err.splitlines() if word in line]
    return line


def test_attributes_that_change_in_training_are_named(capsys, says):
    train(Remembering(), "run", epochs=1)
    says(line_with("attributes", capsys), "calls, latest change", "make each a Parameter")


def test_a_skipped_first_update_names_no_attributes(capsys):
    """The numbers that are not finite are the fault; the next update shows what changes."""
    x = np.full_like(X, 3e38)  # the norm of the gradients overflows
    with pytest.raises(NotFiniteError):
        fit(Remembering(), (x, Y), (X, Y), **SETTINGS, mode="pynative", out_dir="run")
    assert "attributes" not in capsys.readouterr().err


def test_a_buffer_that_compiled_code_changes_is_named(capsys, says):
    train(Counting(), "run", epochs=1, mode="graph")
    says(line_with("buffers", capsys), "buffers calls change", "mode='pynative'")


class FromScratch(nn.Cell):
    """BatchNorm as textbooks write it. (On several workers: test_agreement.)"""

    def __init__(self, channels):
        super().__init__()
        ones, zeros = (np.full((1, channels, 1, 1), value, np.float32) for value in (1, 0))
        self.gamma = Parameter(Tensor(ones), name="gamma")
        self.moving_mean = Parameter(Tensor(zeros), name="moving_mean", requires_grad=False)
        self.moving_var = Parameter(Tensor(ones), name="moving_var", requires_grad=False)

    def construct(self, x):
        mean = self.moving_mean
        variance = self.moving_var
        if self.training:
            mean = x.mean((0, 2, 3), keep_dims=True)
            variance = ops.square(x - mean).mean((0, 2, 3), keep_dims=True)
            ops.assign(self.moving_mean, 0.9 * self.moving_mean + 0.1 * mean)
            ops.assign(self.moving_var, 0.9 * self.moving_var + 0.1 * variance)
        return self.gamma * (x - mean) / ops.sqrt(variance + 1e-5)


def test_a_batchnorm_from_scratch_moves_by_its_formula():
    x = np.random.default_rng(0).normal(size=(16, 2, 4, 4)).astype(np.float32)
    net = nn.SequentialCell(
        FromScratch(2), nn.Conv2d(2, 3, 1), FromScratch(3), nn.Flatten(), nn.Dense(48, 2)
    )
    pair = x, np.arange(16) % 2
    settings = {"epochs": 2, "batch_size": 16, "mode": "pynative", "progress": False}
    fit(net, pair, pair, **settings, out_dir="run")
    after_two = (1 - 0.9**2) * x.mean((0, 2, 3)), 0.9**2 + (1 - 0.9**2) * x.var((0, 2, 3))
    for parameter, expected in zip((net[0].moving_mean, net[0].moving_var), after_two, strict=True):
        np.testing.assert_allclose(parameter.numpy().ravel(), expected, rtol=1e-5)


def test_foreign_lines_in_the_log_cost_nothing(capsys):
    train(Counting(), "run", epochs=1)
    with open("run/metrics.jsonl", "a") as log:
        log.write('{"update": 4, "note": "mine"}\n{"event": "eval", "update": 4, "loss": {}}\n')
    again = train(Counting(), "run", epochs=1)
    assert (again.updates, len(again.history["train"])) == (4, 4)
    printed = capsys.readouterr().err
    assert "metrics.jsonl: line" in printed
    assert "warning: no report of the run" in printed
