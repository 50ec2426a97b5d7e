"""The dynamic loss scale against its rules, those of torch's GradScaler, in plain Python."""

import numpy as np
import pytest
from mindspore import Tensor, jit

from resnet_fn.update.loss_scale import DynamicLossScaler

pytestmark = pytest.mark.usefixtures("device")


def adjust(scaler):
    @jit
    def compiled(finite):
        return scaler.adjust(finite, Tensor(True))

    return lambda finite: compiled(Tensor(finite)).asnumpy()


def test_the_scale_follows_its_rules_in_random_updates():
    """Against the rules in plain Python, over 300 random updates that reach floor and ceiling."""
    scaler = DynamicLossScaler(initial=8.0, growth_interval=3, floor=2.0, ceiling=64.0)
    step = adjust(scaler)
    rng = np.random.default_rng(0)
    scale, good, skipped, in_row, seen = 8.0, 0, 0, 0, set()
    for update in range(300):
        finite = bool(rng.random() < (0.95 if update < 150 else 0.4))
        used = scale
        if finite:
            good = good + 1
            in_row = 0
            if good == 3:
                scale = min(scale * 2, 64.0)
                good = 0
        else:
            scale, good, skipped, in_row = max(scale / 2, 2.0), 0, skipped + 1, in_row + 1
        seen.add(scale)
        assert step(finite).tolist() == [used, skipped, in_row]
        assert (scaler.scale.asnumpy(), scaler.good_updates.asnumpy()) == (scale, good)
    assert {2.0, 64.0} <= seen


def test_off_keeps_the_scale_and_counts_skipped_updates():
    scaler = DynamicLossScaler.off()
    step = adjust(scaler)
    results = [step(finite).tolist() for finite in (False, True, False, False)]
    assert results == [[1, 1, 1], [1, 1, 0], [1, 2, 1], [1, 3, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth_factor": 0.5}, "growth_factor: 0.5 .*give 1 or more"),
        ({"backoff_factor": 0.0}, "backoff_factor: 0.0 .*give 0.5"),
        ({"growth_interval": 0}, "growth_interval: 0 .*give 1 or more"),
        ({"initial": 2.0**30}, "initial: .*floor 1.0 and ceiling 16777216.0"),
    ],
)
def test_impossible_loss_scales_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        DynamicLossScaler(**arguments)
