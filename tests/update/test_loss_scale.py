"""The dynamic loss scale against its rules in plain Python and torch's GradScaler."""

import numpy as np
import pytest
from mindspore import Tensor, jit

from resnet_fn.update.loss_scale import DynamicLossScaler

pytestmark = pytest.mark.usefixtures("device")


def adjust(scaler):
    @jit
    def compiled(finite):
        return scaler.adjust(finite)

    return lambda finite: compiled(Tensor(finite)).asnumpy()


def test_state_machine():
    """Against the rules in plain Python, over 300 random updates that reach floor and ceiling."""
    scaler = DynamicLossScaler(initial=8.0, growth_interval=3, floor=2.0, ceiling=64.0)
    step, rng = adjust(scaler), np.random.default_rng(0)
    scale, good, skipped, in_row, seen = 8.0, 0, 0, 0, set()
    for update in range(300):
        finite = bool(rng.random() < (0.95 if update < 150 else 0.4))
        used = scale
        if finite:
            good, in_row = good + 1, 0
            if good == 3:
                scale, good = min(scale * 2, 64.0), 0
        else:
            scale, good, skipped, in_row = max(scale / 2, 2.0), 0, skipped + 1, in_row + 1
        seen.add(scale)
        assert step(finite).tolist() == [used, skipped, in_row]
        assert (scaler.scale.asnumpy(), scaler.good_updates.asnumpy()) == (scale, good)
    assert {2.0, 64.0} <= seen


def test_off_never_moves_but_counts():
    scaler = DynamicLossScaler.off()
    step = adjust(scaler)
    assert [step(finite).tolist() for finite in (False, True, False, False)] == [
        [1, 1, 1],
        [1, 1, 0],
        [1, 2, 1],
        [1, 3, 2],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth_factor": 0.5}, "growth_factor: 0.5 would shrink the scale; give 1 or more"),
        ({"backoff_factor": 0.0}, r"backoff_factor: 0.0 is not in \(0, 1\]"),
        ({"growth_interval": 0}, "growth_interval: 0 updates"),
        ({"initial": 2.0**30}, "is not between floor 1.0 and ceiling 16777216.0"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        DynamicLossScaler(**arguments)


def test_scaler_equals_torch_grad_scaler_over_random_overflows():
    torch = pytest.importorskip("torch", reason="torch's own scaler is the expectation")
    scaler = DynamicLossScaler(initial=2.0**10, growth_interval=4, floor=2.0**-40, ceiling=2.0**60)
    theirs = torch.amp.GradScaler(device="cpu", init_scale=2.0**10, growth_interval=4)
    weight = torch.nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([weight], lr=1.0)

    @jit
    def adjust(finite):
        return scaler.adjust(finite)

    rng, skipped = np.random.default_rng(0), 0
    for _ in range(100):
        finite = bool(rng.random() < 0.8)
        used = theirs.get_scale()
        before = weight.item()
        theirs.scale(weight.sum() * 1.0).backward()
        if not finite:
            weight.grad.fill_(float("inf"))
        theirs.step(sgd)
        theirs.update()
        sgd.zero_grad()
        assert (weight.item() != before) == finite  # torch skipped where we skip
        skipped += not finite
        got = adjust(Tensor(finite)).asnumpy()
        assert (got[0], got[1]) == (used, skipped)
        assert scaler.scale.asnumpy() == theirs.get_scale()
        assert scaler.good_updates.asnumpy() == theirs.state_dict()["_growth_tracker"]
