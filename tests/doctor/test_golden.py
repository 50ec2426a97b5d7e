import pytest

from resnet_fn.doctor.golden import golden_losses, judge_losses


@pytest.fixture
def losses():
    """440 losses whose first updates and epochs' means are the golden ones."""
    golden = golden_losses()
    found = [mean for mean in golden["epoch_means"] for _ in range(22)]
    found[:2] = golden["first_updates"]
    found[2:22] = [(22 * golden["epoch_means"][0] - sum(found[:2])) / 20] * 20
    return found


def test_the_golden_losses_themselves(losses):
    ok, found = judge_losses(losses)
    assert ok
    assert found.startswith("update 1 is 0 off, update 2 0, an epoch's mean up to ")


@pytest.mark.parametrize(
    ("places", "change", "ok", "part"),
    [
        (slice(0, 1), 0.9e-4, True, "update 1 is 9e-05 off"),
        (slice(0, 1), 1.1e-4, False, "update 1 is 0.0001 off"),
        (slice(1, 2), 1.1e-3, False, "update 2 0.001,"),
        (slice(44, 66), 0.11, False, "an epoch's mean up to 0.1,"),
        (slice(220, 440), 0.009, True, "the last ten's 0.009"),
        (slice(220, 440), 0.011, False, "the last ten's 0.01"),
        (slice(300, 301), float("nan"), False, "nan"),
    ],
)
def test_what_is_allowed(losses, places, change, ok, part):
    losses[places] = [loss + change for loss in losses[places]]
    verdict, found = judge_losses(losses)
    assert verdict == ok
    assert part in found


def test_a_run_that_is_not_whole(losses):
    assert judge_losses(losses[:-1]) == (False, "439 updates are not 20 epochs")
    assert judge_losses([]) == (False, "0 updates are not 20 epochs")
