"""What counts as a decision of PyTorch's functions, and what noise reaches."""

import numpy as np
import pytest

from resnet_fn.parity.plan import plan_of
from small_nets import SGD, draw, record_reference, theirs

torch = pytest.importorskip("torch", reason="decisions are those of torch: pip install torch")
from resnet_fn.parity.record.torch_copy import copied  # noqa: E402
from resnet_fn.parity.record.torch_decisions import Deciding, Decisions  # noqa: E402
from resnet_fn.parity.record.torch_modes import Noise, in_float64  # noqa: E402
from resnet_fn.parity.record.torch_module import in_precision  # noqa: E402


def net():
    """BatchNorm's counter is an integer, which each copy copies."""
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))


def test_copies_of_integers_are_no_decisions():
    decisions = Decisions()
    with Deciding(decisions.note):
        copied(net())
    assert (decisions.noted, decisions.can_tie) == ([], False)


def test_a_decision_is_kept_behind_other_copies():
    """Float64 is a copy of a copy, and so has more calls that copy."""
    module, x = net(), torch.randn(4, 3)
    decisions = Decisions()
    with Deciding(decisions.note):
        above = copied(module)(x) > 0.1
    decisions.restart()
    with Deciding(decisions.kept), in_float64():
        again = copied(in_precision(copied(module), torch.float64))(-x) > 0.1
    assert torch.equal(above, again)


def test_noise_reaches_complex_numbers():
    x = torch.randn(8)
    exact = torch.fft.ifft(torch.fft.fft(x))
    with Noise(0):
        noisy = torch.fft.ifft(torch.fft.fft(x))
    error = (noisy - exact).norm() / exact.norm()
    assert 1e-8 < error < 1e-5


def test_a_reference_with_vmap_is_recorded():
    """Inside of vmap, numbers cannot be read, so nothing is decided, noisy or a limit there."""

    def forward(net, x):
        x = torch.vmap(lambda one: torch.where(one > 0, one, -one.clamp(max=9)))(x)
        return torch.vmap(lambda one: net.head.weight @ one)(x)

    plan = plan_of(SGD, [(draw(4, 8), np.int32([0, 1, 0, 1]))])
    trace = record_reference(theirs(forward), plan)
    assert (trace.notes, trace.limits) == ([], [])
