"""References of kinds that were refused: hooks by closure, sparse gradients, further state, nothing
to train; and the errors of those that fail.
"""

import collections
import functools
import threading
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.config.cli import UsageError
from resnet_fn.parity.commands import live
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

    def __init__(self, bind: str):
        super().__init__(t.Linear(8, 8))
        kept: dict[str, Any] = {}
        self.kept, net = kept, self
        hooks = {
            "dict": lambda layer, given, output: kept.update(first=output),
            "net": lambda layer, given, output: net.kept.update(first=output),
            "default": lambda layer, given, output, to=kept: to.update(first=output),
            "method": self.keep,
        }
        self.part.register_forward_hook(hooks[bind])

    def keep(self, layer, given, output):
        self.kept["first"] = output

    def forward(self, x):
        self.part(x)
        return self.head(torch.tanh(self.kept.pop("first")))


@pytest.fixture
def copied():
    from resnet_fn.parity.record.torch_copy import copied

    return copied


def check_copy(again, net):
    """The copy computes the same, by weights of its own."""
    x = torch.from_numpy(draw(2, 8))
    torch.testing.assert_close(again(x), net(x))
    with torch.no_grad():
        again.part.weight.zero_()
    assert not again(x).equal(net(x))


@pytest.mark.parametrize("bind", ["dict", "net", "default", "method"])
def test_hooks_of_a_copy_act_on_the_copy(bind, copied):
    net = Hooked(bind)
    again = copied(net)
    check_copy(again, net)
    again.part(torch.ones(2, 8))
    assert "first" in again.kept
    assert "first" not in net.kept


@pytest.mark.parametrize("by", ["dict", "function"])
def test_hooks_and_methods_share_what_they_enclose(by, copied):
    """The method encloses the dict, too."""
    part, kept = t.Linear(8, 8), {}
    part.register_forward_hook(lambda layer, given, output: kept.update(first=output))

    def last():
        return kept["first"]

    def forward(self, x):
        self.part(x)
        return self.head(torch.tanh(last() if by == "function" else kept["first"]))

    net = module(forward, part=part, head=t.Linear(8, 3))
    check_copy(copied(copied(net)), net)
    agrees(Ours(nn.Dense(8, 8), nn.Tanh()), net, [vector()])


def test_layers_that_methods_enclose_are_copied(copied):
    layers = [t.Linear(8, 8)]
    net = module(lambda n, x: n.layers[len(layers) - 1](x), layers=layers)
    net.inner = t.ModuleList(layers)
    again = copied(net)
    assert again.layers[0] is again.inner[0]
    assert again.layers[0] is not layers[0]


def doubled(self, x):
    if x.requires_grad:
        x.register_hook(lambda gradient: 2 * gradient)
    return x * 1


def test_tensor_hooks_act_under_noise_too():
    ladder = ladder_of(Ours(nn.Dense(8, 8)), Theirs(t.Linear(8, 8), module(doubled)), [vector()])
    assert title_of_stage(ladder.first_stage) == "gradients"


def test_sparse_gradients_are_compared_as_dense_ones():
    def forward(self, ids):
        return self.head(self.table(ids).mean(1))

    net = module(forward, table=t.Embedding(20, 8, sparse=True), head=t.Linear(8, 3))
    port = cell(forward, table=nn.Embedding(20, 8), head=nn.Dense(8, 3))
    batches = [(np.random.randint(0, 20, (6, 4)), labels(6)) for _ in range(2)]
    use = SGD.changed(clip_norm=0.05, momentum=0.0, nesterov=False, weight_decay=0.0)
    agrees(port, net, batches, use)


class Versioned(t.Linear):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def test_extra_state_of_a_layer_is_no_array():
    agrees(Ours(nn.Dense(8, 8)), Theirs(Versioned(8, 8)), [vector()])


def filters(self, x):
    """A front end without weights."""
    return {"power": torch.fft.rfft(x).abs() ** 2, "mean": x.mean(1)}


def power(self, x: Tensor, scale: float = 1.0):
    angles = 2 * np.pi * np.outer(np.arange(8), np.arange(5)) / 8
    parts = [ops.matmul(x, Tensor(f(angles).astype(np.float32))) for f in (np.cos, np.sin)]
    return {"power": parts[0] ** 2 + parts[1] ** 2, "mean": scale * x.mean(1)}


def test_a_net_without_weights_is_compared_forward_only():
    agrees(cell(power), module(filters), [vector(), vector()])
    wrong = ladder_of(cell(lambda self, x: power(self, x, 1.01)), module(filters), [vector()])
    assert title_of_stage(wrong.first_stage) == "eval forward"
    assert "only forward passes are compared" in table(wrong)


def fails_in_training(self, x):
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
        (KeyError, "correct this line"),
        (AttributeError, "correct this line"),
        (RuntimeError, "give --inputs, or sizes that the module takes"),
        (IndexError, "give --inputs, or sizes that the module takes"),
        (AssertionError, "give --inputs, or sizes that the module takes"),
    ],
)
def test_errors_of_inputs_advise_other_inputs(error, fix):
    def fails(self, x):
        raise error("reason")

    with pytest.raises(ValueError, match=rf"at test_references\.py:.*; {fix}$"):
        record_reference(Theirs(module(fails)), plan(), probes=False)


def plan():
    from resnet_fn.parity.plan import plan_of

    return plan_of(SGD, [vector()])


@pytest.fixture
def file_of_reference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_net("t.py", "torch", "self.head = nn.Linear(64, 10)", "return self.head(x.flatten(1))")
    return ["--reference", "t.py:Net"]


def test_a_net_that_cannot_be_built_is_named(file_of_reference):
    write_net("m.py", "mindspore", "self.head = nn.Dens(64, 10)", "return self.head(x)")
    task = ["--image-size", "8", "--in-channels", "1", "--steps", "1", "--no-initialisation"]
    with pytest.raises(ValueError, match=r"--net: m.py:Net fails at m.py:8 \(AttributeError: "):
        live([*file_of_reference, "--net", "m.py:Net", *task])


def test_wrong_usage_is_found_before_anything_runs(file_of_reference):
    """The port's file is missing, too."""
    with pytest.raises(UsageError, match="--json"):
        live([*file_of_reference, "--net", "m.py:Net", "--json", "missing/a.json"])


def test_copies_have_counts_of_their_own(copied):
    """A count in an attribute, which a method encloses, too."""
    counts = {"calls": 0}

    def forward(self, x):
        self.counts["calls"] += len(counts)
        return x

    net = module(forward, counts=counts)
    for _ in range(2):
        copied(net)(torch.ones(2, 8))
    assert counts["calls"] == 0


class Teacher(t.Module):
    """Layers that copy as themselves, as a teacher whose class saves memory so."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("held", ["layer", "list"])
def test_layers_that_copy_as_themselves_are_copied(held, copied):
    """The statistics move in each run."""

    def teacher_of(net):
        return net.teacher if held == "layer" else net.teacher[0]

    teacher = Teacher(norm=t.BatchNorm1d(8))
    net = module(None, teacher=teacher if held == "layer" else [teacher], norm=teacher.norm)
    again = copied(net)
    assert teacher_of(again).norm is again.norm
    again.norm.train()(torch.ones(2, 8))
    counts = [one.norm.num_batches_tracked for one in (net, again, teacher_of(copied(again)))]
    assert counts == [0, 1, 1]


@pytest.mark.parametrize("locked", ["before", "after"])
def test_layers_around_what_cannot_be_copied_are_copied(locked, copied):
    """Only the lock is shared. The weight that two layers share, too, is one in the copy."""
    last, lock = t.Linear(8, 8), {"lock": threading.Lock()}
    parts = {"weight": last.weight, "scales": [torch.ones(8)], "inner": t.Linear(8, 8)}
    first = module(None, **(lock | parts if locked == "before" else parts | lock))
    net = t.Sequential(Teacher(layers=t.Sequential(first, last), scales=first.scales))
    ((teacher,), (again,)) = net, copied(net)
    for name, parameter in again.named_parameters():
        assert parameter is not teacher.get_parameter(name), name
    assert again.layers[0].weight is again.layers[1].weight
    assert again.layers[0].scales is again.scales is not teacher.scales
    assert again.layers[0].lock is first.lock
    assert list(again.state_dict()) == list(teacher.state_dict())


@pytest.mark.parametrize("kind", [list, tuple, functools.partial(collections.deque, maxlen=2)])
def test_a_lock_beside_layers_leaves_them_copied(kind, copied):
    net = t.Sequential(Teacher(held=kind([t.Linear(8, 8), threading.Lock()])))
    held, copies = net[0].held, copied(net)[0].held
    assert copies[0] is not held[0]
    assert copies[0].weight is not held[0].weight
    assert copies[1] is held[1]
    assert getattr(copies, "maxlen", 2) == 2


def _three_tanh(layer, args):
    tanh = torch.tanh if isinstance(args[0], torch.Tensor) else ops.tanh
    return (3 * tanh(args[0]),)


def _three_tanh_in_place(layer, args):
    args[0].tanh_().mul_(3)


def _three_tanh_once(layer, args):
    if (args[0].abs() > 2.9).any():
        raise ValueError("these inputs have been changed before")
    return _three_tanh(layer, args)


def test_hooks_that_set_what_layers_read_run_too():
    """As of a weight norm, if the layer runs alone."""
    from resnet_fn.parity.record.torch_layers import inputs_of_layer, running_layer

    part = module(lambda layer, x: layer.dense(x) * layer.scale, dense=t.Linear(8, 8))
    part.register_forward_pre_hook(lambda layer, args: setattr(layer, "scale", 2.0))
    net, x = t.Sequential(part), draw(6, 8)
    run = running_layer(net[0], inputs_of_layer(net, "0", x), False)
    right = 2 * part.dense(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run(), right, rtol=1e-5)


@pytest.mark.parametrize(
    ("by", "before"),
    [
        ("reference", _three_tanh),
        ("port", _three_tanh),
        ("reference", _three_tanh_in_place),
        ("reference", _three_tanh_once),
    ],
)
@pytest.mark.parametrize("drops", [False, True])
def test_pre_hooks_act_once_in_layers_run_alone(by, before, drops):
    """As for probes, or to measure dropout. The other net computes the same without a hook."""

    def with_branch(self, x):
        return self.drop(self.dense(x)) + x

    part, ported = t.Linear(8, 8), nn.Dense(8, 8)
    if drops:
        part = module(with_branch, dense=part, drop=t.Dropout(0.5))
        ported = cell(with_branch, dense=ported, drop=nn.Dropout(p=0.5))
    (part if by == "reference" else ported).register_forward_pre_hook(before)

    def forward(self, x):
        return self.head(self.part(x if by == "reference" else 3 * torch.tanh(x)))

    def construct(self, x):
        return self.head(self.part(x if by == "port" else 3 * ops.tanh(x)))

    ladder = agrees(ours(construct, ported), theirs(forward, part), [vector()], quick=drops)
    assert drops or "−x" in ladder.probed.agreed["part"]
