"""References of kinds that were refused: hooks by closure, sparse gradients, further state, nothing
to train; and the errors of those that fail.
"""

import collections
import dataclasses
import functools
import threading
from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.cli import UsageError
from resnet_fn.parity.commands import live, record
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import (
    SGD,
    Ours,
    Theirs,
    agrees,
    cell,
    draw,
    labels,
    ladder_of,
    module,
    ours,
    record_reference,
    t,
    theirs,
    torch,
    vector,
    write_net,
)

pytestmark = pytest.mark.usefixtures("device")


class Hooked(Theirs):
    """Adds the output of its first layer, which a hook stores, as feature extractors do."""

    def __init__(self, bind: str) -> None:
        super().__init__(t.Linear(8, 8))
        self.kept: dict[str, Any] = {}
        kept, net = self.kept, self

        def by_dict(layer: Any, given: Any, output: Any) -> None:
            kept["first"] = output

        def by_net(layer: Any, given: Any, output: Any) -> None:
            net.kept["first"] = output

        def by_default(layer: Any, given: Any, output: Any, to: Any = kept) -> None:
            to["first"] = output

        hook = {"dict": by_dict, "net": by_net, "default": by_default, "method": self.keep}[bind]
        self.part.register_forward_hook(hook)

    def keep(self, layer: Any, given: Any, output: Any) -> None:
        self.kept["first"] = output

    def forward(self, x: Any) -> Any:
        self.part(x)
        return self.head(torch.tanh(self.kept.pop("first")))


@pytest.mark.parametrize("bind", ["dict", "net", "default", "method"])
def test_hooks_of_a_copy_act_on_the_copy(bind):
    from resnet_fn.parity.record.torch_copy import copied

    net = Hooked(bind)
    again = copied(net)
    x = torch.from_numpy(draw(2, 8))
    torch.testing.assert_close(again(x), net(x))
    again.part(x)
    assert "first" in again.kept
    assert "first" not in net.kept
    with torch.no_grad():
        again.part.weight.zero_()
    assert net.part.weight.any()


@pytest.mark.parametrize("by", ["dict", "function"])
def test_hooks_and_methods_share_what_they_enclose(by):
    """The class is defined where the dict is, so that its methods enclose the dict, too."""
    from resnet_fn.parity.record.torch_copy import copied

    part, head, kept = t.Linear(8, 8), t.Linear(8, 3), {}
    part.register_forward_hook(lambda layer, given, output: kept.__setitem__("first", output))

    def last() -> Any:
        return kept["first"]

    class Net(t.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.head = part, head

        def forward(self, x: Any) -> Any:
            self.part(x)
            return self.head(torch.tanh(last() if by == "function" else kept["first"]))

    net = Net()
    again = copied(copied(net))
    assert again.part.weight is not part.weight
    x = torch.from_numpy(draw(2, 8))
    torch.testing.assert_close(again(x), net(x))
    with torch.no_grad():
        again.part.weight.zero_()
    assert not again(x).equal(net(x))
    agrees(Ours(nn.Dense(8, 8), nn.Tanh()), net, [vector()])


def test_layers_that_methods_enclose_are_copied():
    from resnet_fn.parity.record.torch_copy import copied

    layers = [t.Linear(8, 8)]

    class Net(t.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.inner = layers, t.ModuleList(layers)

        def forward(self, x: Any) -> Any:
            return self.layers[0](x)

        def count(self) -> int:
            return len(layers)

    again = copied(Net())
    assert again.layers[0] is again.inner[0]
    assert again.layers[0] is not layers[0]


def test_a_reference_with_hooks_by_closure_agrees():
    agrees(Ours(nn.Dense(8, 8), nn.Tanh()), Hooked("net"), [vector()])


def doubled(self: Any, x: Any) -> Any:
    if x.requires_grad:
        x.register_hook(lambda gradient: 2 * gradient)
    return x * 1


def test_tensor_hooks_act_under_noise_too():
    ladder = ladder_of(Ours(nn.Dense(8, 8)), Theirs(t.Linear(8, 8), module(doubled)), [vector()])
    assert title_of_stage(ladder.first_stage) == "gradients"


class Embedded(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = t.Embedding(20, 8, sparse=True), t.Linear(8, 3)

    def forward(self, ids: Any) -> Any:
        return self.head(self.table(ids).mean(1))


class PortedEmbedded(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Dense(8, 3)

    def construct(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).mean(1))


def test_sparse_gradients_are_compared_as_dense_ones():
    batches = [(np.random.randint(0, 20, (6, 4)), labels(6)) for _ in range(2)]
    use = dataclasses.replace(SGD, clip_norm=0.05, momentum=0.0, nesterov=False, weight_decay=0.0)
    agrees(PortedEmbedded(), Embedded(), batches, use)


class Versioned(t.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_extra_state_of_a_layer_is_no_array():
    agrees(Ours(nn.Dense(8, 8)), Theirs(Versioned(8, 8)), [vector()])


class Filters(t.Module):
    """A front end without weights."""

    def forward(self, x: Any) -> Any:
        return {"power": torch.fft.rfft(x).abs() ** 2, "mean": x.mean(1)}


def power(self: Any, x: Tensor, scale: float = 1.0) -> Any:
    angles = 2 * np.pi * np.outer(np.arange(8), np.arange(5)) / 8
    parts = [ops.matmul(x, Tensor(f(angles).astype(np.float32))) for f in (np.cos, np.sin)]
    return {"power": parts[0] ** 2 + parts[1] ** 2, "mean": scale * x.mean(1)}


def test_a_net_without_weights_is_compared_forward_only():
    agrees(cell(power), Filters(), [vector(), vector()])
    wrong = ladder_of(cell(lambda self, x: power(self, x, 1.01)), Filters(), [vector()])
    assert title_of_stage(wrong.first_stage) == "eval forward"
    assert "only forward passes are compared" in table(wrong)


def fails_in_training(self: Any, x: Any) -> Any:
    if self.training:
        raise KeyError("teacher")
    return x


def test_a_reference_that_fails_in_training_is_named():
    with pytest.raises(ValueError) as error:
        record_reference(Theirs(module(fails_in_training)), plan(), probes=False)
    line = fails_in_training.__code__.co_firstlineno + 2
    assert str(error.value).startswith("reference: in training mode it fails on inputs float32")
    assert f"at test_references.py:{line} (KeyError: 'teacher')" in str(error.value)
    assert str(error.value).endswith("correct this line; in evaluation mode, it runs")


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (KeyError("teacher"), "correct this line"),
        (AttributeError("teacher"), "correct this line"),
        (RuntimeError("shapes"), "give --inputs, or sizes that the module takes"),
        (IndexError("index"), "give --inputs, or sizes that the module takes"),
        (AssertionError("size"), "give --inputs, or sizes that the module takes"),
    ],
)
def test_errors_of_inputs_advise_other_inputs(error, fix):
    def fails(self: Any, x: Any) -> Any:
        raise error

    with pytest.raises(ValueError) as raised:
        record_reference(Theirs(module(fails)), plan(), probes=False)
    assert "at test_references.py:" in str(raised.value)
    assert str(raised.value).endswith(f"; {fix}")


def plan() -> Any:
    from resnet_fn.parity.plan import plan_of

    return plan_of(SGD, [vector()])


def test_a_net_that_cannot_be_built_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_net("t.py", "torch", "self.head = nn.Linear(64, 10)", "return self.head(x.flatten(1))")
    write_net("m.py", "mindspore", "self.head = nn.Dens(64, 10)", "return self.head(x)")
    task = ["--image-size", "8", "--in-channels", "1", "--steps", "1", "--no-initialisation"]
    with pytest.raises(ValueError, match=r"--net: m.py:Net fails at m.py:8 \(AttributeError: "):
        live(["--reference", "t.py:Net", "--net", "m.py:Net", *task])


def test_wrong_usage_is_found_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_net("t.py", "torch", "self.head = nn.Linear(64, 10)", "return self.head(x.flatten(1))")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("")
    nets = ["--reference", "t.py:Net"]
    for command, arguments, words in (
        (live, [*nets, "--net", "m.py:Net", "--json", "missing/a.json"], "--json"),
        (record, [*nets, "--out", "full"], "--out"),
    ):
        with pytest.raises((UsageError, SystemExit)) as error:
            command(arguments)
        assert words in str(error.value) or getattr(error.value, "code", 0) == 2


def test_copies_have_counts_of_their_own():
    """A count in an attribute, which a method encloses, too: copies have their own."""
    from resnet_fn.parity.record.torch_copy import copied

    counts = {"calls": 0}

    class Counting(t.Module):
        def __init__(self):
            super().__init__()
            self.head, self.counts = t.Linear(8, 3), counts

        def forward(self, x):
            self.counts["calls"] += self.training
            return self.head(x) * 0.5 ** self.counts["calls"]

        def calls(self):
            return counts["calls"]

    module = Counting()
    for _ in range(2):
        copied(module).train()(torch.ones(2, 8))
    assert counts["calls"] == 0


@pytest.mark.parametrize("held", ["layer", "list"])
def test_layers_that_copy_as_themselves_are_copied(held):
    """As a teacher whose class saves memory so. Its statistics move in each run."""
    from resnet_fn.parity.record.torch_copy import copied

    class Teacher(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = t.BatchNorm1d(8)

        def __deepcopy__(self, memo):
            return self

        def forward(self, x):
            return self.norm(x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            teacher = Teacher()
            self.teacher = teacher if held == "layer" else [teacher]
            self.norm = teacher.norm

    def teacher_of(net):
        return net.teacher if held == "layer" else net.teacher[0]

    net = Net()
    again = copied(net)
    assert teacher_of(again).norm is again.norm
    teacher_of(again).train()(torch.ones(2, 8))
    assert not net.norm.num_batches_tracked
    assert again.norm.num_batches_tracked == 1
    assert teacher_of(copied(again)).norm.num_batches_tracked == 1


@pytest.mark.parametrize("locked", ["before", "after"])
def test_layers_around_what_cannot_be_copied_are_copied(locked):
    """Only the lock is shared. The weight that two layers share, too, is one in the copy."""
    from resnet_fn.parity.record.torch_copy import copied

    class Locked(t.Linear):
        def __init__(self, tied):
            super().__init__(8, 8)
            lock = threading.Lock()
            if locked == "before":
                self.lock = lock
            self.weight = tied.weight
            self.scales = [torch.ones(8)]
            self.inner = t.Linear(8, 8)
            self.lock = lock

    class Teacher(t.Module):
        def __init__(self):
            super().__init__()
            first = t.Linear(8, 8)
            self.layers = t.Sequential(Locked(first), first)
            self.scales = self.layers[0].scales

        def __deepcopy__(self, memo):
            return self

    net = t.Sequential(Teacher())
    (again,) = copied(net)
    (teacher,) = net
    for name, parameter in again.named_parameters():
        assert parameter is not teacher.get_parameter(name), name
    assert again.layers[0].weight is again.layers[1].weight
    assert again.layers[0].scales is again.scales is not teacher.scales
    assert again.layers[0].lock is teacher.layers[0].lock
    assert list(again.state_dict()) == list(teacher.state_dict())


@pytest.mark.parametrize("kind", [list, tuple, functools.partial(collections.deque, maxlen=2)])
def test_a_lock_beside_layers_leaves_them_copied(kind):
    from resnet_fn.parity.record.torch_copy import copied

    class Teacher(t.Module):
        def __init__(self):
            super().__init__()
            self.held = kind([t.Linear(8, 8), threading.Lock()])

        def __deepcopy__(self, memo):
            return self

    net = t.Sequential(Teacher())
    ((layer, lock), (again, other)) = net[0].held, copied(net)[0].held
    assert again is not layer
    assert again.weight is not layer.weight
    assert other is lock
    assert getattr(copied(net)[0].held, "maxlen", 2) == 2


def _three_tanh(layer, args):
    tanh = torch.tanh if isinstance(args[0], torch.Tensor) else ops.tanh
    return (3 * tanh(args[0]),)


def _three_tanh_in_place(layer, args):
    args[0].tanh_().mul_(3)


def _three_tanh_once(layer, args):
    if (args[0].abs() > 2.9).any():
        raise ValueError("these inputs have been changed before")
    return _three_tanh(layer, args)


@pytest.mark.parametrize(
    ("by", "before"),
    [
        ("reference", _three_tanh),
        ("port", _three_tanh),
        ("reference", _three_tanh_in_place),
        ("reference", _three_tanh_once),
    ],
)
def test_pre_hooks_act_once_in_layers_run_alone(by, before):
    """The other net computes the same without one."""

    def forward(self, x):
        return self.head(self.part(x if by == "reference" else 3 * torch.tanh(x)))

    def construct(self, x):
        return self.head(self.part(x if by == "port" else 3 * ops.tanh(x)))

    net, port = theirs(forward, t.Linear(8, 8)), ours(construct, nn.Dense(8, 8))
    hooked = net if by == "reference" else port
    hooked.part.register_forward_pre_hook(before)
    batches = [(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32), labels(6))]
    ladder = agrees(port, net, batches, quick=False)
    assert "−x" in ladder.probed.agreed["part"]


def test_a_ports_pre_hook_acts_once_with_dropout():
    def forward(self, x):
        return self.drop(self.dense(x)) + x

    class Part(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense, self.drop = t.Linear(8, 8), t.Dropout(0.5)

    Part.forward = forward
    other = Part()
    part = cell(forward, dense=nn.Dense(8, 8), drop=nn.Dropout(p=0.5))
    part.register_forward_pre_hook(_three_tanh)
    port = ours(lambda self, x: self.head(self.part(x)), part)
    net = theirs(lambda self, x: self.head(self.part(3 * torch.tanh(x))), other)
    batches = [(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32), labels(6))]
    agrees(port, net, batches)


@pytest.mark.parametrize("before", [_three_tanh, _three_tanh_in_place, _three_tanh_once])
def test_pre_hooks_leave_inputs_of_layers_alone(before):
    from resnet_fn.parity.record.torch_layers import inputs_of_layer, running_layer

    class Scaled(t.Linear):
        """Its hook sets what it reads, as that of a weight norm."""

        def forward(self, x):
            return super().forward(x) * self.scale

    net = torch.nn.Sequential(Scaled(8, 8))
    net[0].register_forward_pre_hook(lambda layer, args: setattr(layer, "scale", 2.0))
    net[0].register_forward_pre_hook(before)
    inputs = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    run = running_layer(net[0], inputs_of_layer(net, "0", inputs), False)
    expected = net(torch.from_numpy(inputs.copy())).detach().numpy()
    for _ in range(2):
        np.testing.assert_allclose(run(), expected, rtol=1e-5)


@pytest.mark.parametrize(("change", "is_named"), [(0.0, True), (1e-3, False)])
def test_tables_of_another_precision_are_named(change, is_named):
    """A cosine of large numbers, which float32 rounds: its table is in the reference."""

    def construct(self, x):
        return self.head(self.part(x) @ self.table)

    def forward(self, x):
        return self.head(self.part(x) @ self.table)

    steps = np.arange(8.0)
    angles = np.pi / 8 * (steps[None] + 0.5) * steps[:, None]
    table = (np.cos(angles) + change).astype(np.float32)
    table = Parameter(Tensor(table), requires_grad=False)
    net, port = theirs(forward, t.Linear(8, 8)), ours(construct, nn.Dense(8, 8), table=table)
    net.register_buffer("table", torch.cos(torch.from_numpy(angles.astype(np.float32))))
    batches = [(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32), labels(6))]
    stage = ladder_of(port, net, batches).first_stage
    assert title_of_stage(stage) == "untrained arrays"
    assert ("may compute this table in float64" in stage.hints[0]) is is_named
