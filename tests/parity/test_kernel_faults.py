"""Right ports that differ because of MindSpore's compiler and kernels: the cause is named."""

import re
from types import SimpleNamespace

import mindspore
import pytest
from mindspore import nn, ops

from resnet_fn.parity.explain.kernel_causes import compiler_causes
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record import kernel_faults as module_of_faults
from resnet_fn.parity.record.kernel_faults import FAULTS, kernel_faults
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.source import Recorded, StoredSource
from small_nets import (
    SGD,
    Ours,
    Theirs,
    cell,
    ladder_of,
    module,
    own_step,
    record_reference,
    t,
    vector,
)

pytestmark = pytest.mark.usefixtures("device")


def selu():
    return cell(lambda self, x: ops.selu(x))


def step_with(in_graph, in_python):
    """A step whose gradients have a factor, which depends on whether it is compiled."""

    def make_step(net, loss, optimizer, **options):
        factor = in_graph if options["jit"] else in_python

        def scaled(net, sums, plan):
            return [factor * one for one in sums]

        return own_step(scaled)(net, loss, optimizer, **options)

    return make_step


def test_graph_mode_alone_is_the_cause():
    net, reference = Ours(nn.Dense(8, 8)), Theirs(t.Linear(8, 8))
    graph = {"mode": "graph", "quick": False}
    ladder = ladder_of(net, reference, [vector()], make_step=step_with(2, 1), **graph)
    assert title_of_stage(ladder.first_stage) == "gradients"
    (line,) = ladder.first_stage.hints
    assert line.startswith(
        "graph mode alone differs: not compiled, this stage agrees (--mode pynative)"
    )
    # What is wrong in both modes, or does not run uncompiled, has no such cause.
    for trace in ("the same", None):
        port = SimpleNamespace(uncompiled=lambda trace=trace: trace, kernel_faults=list)
        assert compiler_causes(ladder, port, lambda trace: ladder) == []


def test_a_kernel_with_a_wrong_gradient_is_named():
    """SELU's gradient is wrong, so the layer before it gets a wrong one."""
    reference = Theirs(t.Linear(8, 8), t.SELU())
    ladder = ladder_of(
        Ours(nn.Dense(8, 8), selu()), reference, [vector()], quick=False, mode="pynative"
    )
    assert title_of_stage(ladder.first_stage) == "gradients"
    assert re.fullmatch(
        r"MindSpore [0-9.]+: the gradient of ops.selu at −1 is 0.76 off, and this net may use it",
        ladder.first_stage.hints[0],
    )


def test_a_kernel_is_named_before_the_missing_reference():
    """A recorded reference cannot be searched, but the port's kernels can be looked at."""
    module = Theirs(t.Linear(8, 8), t.SELU())
    plan = plan_of(SGD, [vector()])
    trace = record_reference(module, plan, probes=False)
    trace.file = "theirs.py, SHA-256 0"
    recorded = Recorded(trace, StoredSource(trace))
    ladder = ladder_of(Ours(nn.Dense(8, 8), selu()), recorded, quick=False)
    (line,) = ladder.first_stage.hints
    assert "the gradient of ops.selu" in line


@pytest.mark.parametrize("known", FAULTS, ids=lambda one: one.what)
def test_each_known_fault_is_in_its_versions(known, monkeypatch):
    if known.error is module_of_faults.softmax_now:
        # It stays wrong in this process, for tensors of so many axes.
        monkeypatch.setattr(module_of_faults, "AXES", [7])
        mindspore.grad(lambda x: ops.softmax(x, -1).sum())(ops.ones([2] * 6 + [1]))
    if mindspore.__version__.startswith(known.versions):
        assert known.error() > 1e-3


def test_softmax_is_tried_wherever_it_has_kernels(monkeypatch):
    def error(function, x, right):
        if x.ndim == 3:
            raise RuntimeError("The kernel Softmax unregistered.")
        return x.ndim / 8

    monkeypatch.setattr(module_of_faults, "_gradient_error", error)
    assert module_of_faults.softmax_now() == 5 / 8


def test_only_faults_of_used_operations_are_named():
    assert kernel_faults([nn.Dense(3, 3)]) == []
    version = mindspore.__version__
    if version.startswith("2.10."):
        (of_selu,), (of_pad,) = kernel_faults([nn.SeLU()]), kernel_faults([nn.ZeroPad2d(1)])
        assert of_selu.words == f"MindSpore {version}: the gradient of ops.selu at −1 is 0.76 off"
        assert "from the second call on, the gradient of ops.pad is wrong" in of_pad.words


def test_a_slice_without_a_gradient_is_explained():
    def sliced(self, x):
        return x.reshape(6, 4, 2, 1)[:, ::2].reshape(6, 4)

    net = Ours(nn.Dense(8, 8), cell(sliced), width=4)
    reference = Theirs(t.Linear(8, 8), module(sliced), width=4)
    with pytest.raises(ValueError, match="gradient of a slice with a step"):
        ladder_of(net, reference, [vector()])
