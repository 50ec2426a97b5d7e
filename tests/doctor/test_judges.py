"""Each judgement on results as the commands write them, and on the same with one thing wrong."""

import math

import numpy as np
import pytest

from resnet_fn.doctor import judges
from resnet_fn.doctor.golden import golden_losses


def test_apart():
    assert judges.apart(1.5, 1.0) == 0.5
    assert judges.apart(-1.0, -2.0) == 0.5
    assert judges.apart(0.25, 0.0) == 0.25
    assert math.isinf(judges.apart(None, 1.0))  # metrics.jsonl has null for what is not finite
    assert math.isinf(judges.apart(1.0, None))


def test_ladder():
    stages = [{"verdict": verdict} for verdict in ("ok", "ok", "rounding")]
    told = {"stages": stages, "agrees": True, "first_stage": None, "first_layer": None, "first_gradient": None}
    answer = judges.ladder(told)
    assert answer == (True, "2 stages ok, 1 stages rounding (ladder.json)", {"ok": 2, "rounding": 1})
    stages.append({"verdict": "DIFFERS"})
    answer = judges.ladder({**told, "agrees": False, "first_stage": "gradients", "first_gradient": "fc.weight"})
    assert not answer.ok
    assert answer.found.endswith(
        "1 stages DIFFERS; first that differ: stage gradients, gradient fc.weight (ladder.json)"
    )


def test_scores():
    expected = {"event": "eval", "loss": 0.25, "top1": 0.5, "top5": 1.0, "count": 360}
    same = {name: expected[name] for name in ("loss", "top1", "top5", "count")}
    assert judges.scores(expected, {"batches of 77": same}).ok
    other = {**same, "loss": np.nextafter(0.25, 1)}
    answer = judges.scores(expected, {"batches of 77": same, "2 workers": other})
    assert answer == (False, "loss 0.25 of 360 images; another with 2 workers", {})


def log(losses, norm=1.0):
    return [{"loss": loss, "grad_norm": norm} for loss in losses]


@pytest.mark.parametrize(
    ("ours", "ok", "found"),
    [
        (log([2.0, 1.0]), True, "update 1 is 0 off, the losses of all 2 up to 0"),
        (log([2.0, 1.009]), True, "losses of all 2 up to 0.009"),
        (log([2.0, 1.011]), False, "losses of all 2 up to 0.01"),
        (log([2.00003, 1.0]), False, "update 1 is 2e-05 off"),
        (log([2.0, 1.0], norm=1.1), False, "update 1 is 0.1 off"),
        (log([2.0]), False, "1 updates instead of 2"),
        (log([2.0, None]), False, "losses of all 2 up to inf"),
    ],
)
def test_workers(ours, ok, found):
    answer = judges.workers(ours, log([2.0, 1.0]))
    assert answer.ok == ok
    assert found in answer.found


def half(scales, skipped, loss=None):
    first = golden_losses()["first_updates"][0] if loss is None else loss
    return [
        {"loss": first, "loss_scale": scale, "skipped": count} for scale, count in zip(scales, skipped, strict=True)
    ]


@pytest.mark.parametrize(
    ("events", "moved", "wrong"),
    [
        (half([8, 4, 2, 2], [1, 2, 2, 2]), [False, True, True], ""),
        (half([8, 8, 8, 8], [0, 0, 0, 0]), [True, True, True], "no overflow was noticed"),
        (half([8, 4, 2, 1], [1, 2, 3, 4]), [False, False, False], "every update was skipped"),
        (half([8, 4, 2, 2], [1, 2, 2, 2]), [True, True, True], "a skipped update moved weights"),
        (half([8, 4, 2, 2], [1, 2, 2, 2]), [False, False, True], "an update moved nothing"),
        (half([8, 8, 8, 8], [1, 2, 2, 2]), [False, True, True], "the scale did not halve"),
        (half([8, 4, 2, 2], [1, 2, 2, 2], loss=2.5), [False, True, True], "the first loss is 2.5"),
    ],
)
def test_overflow(events, moved, wrong):
    answer = judges.overflow(events, moved)
    assert answer.ok == (not wrong)
    assert answer.found.startswith(wrong or "2 of 4 updates skipped, the scale went from 8 to 2")


def test_resume():
    state = {"fc.weight": np.zeros(3, np.float32), "step": np.ones(1, np.float32)}
    assert judges.resume(3, [9, 9], state, state) == (True, "killed after update 3, after 9: 2 arrays equal", {})
    other = {**state, "fc.weight": -np.zeros(3, np.float32)}  # equal numbers, other bits
    answer = judges.resume(3, [9, 9], other, state)
    assert answer == (False, "killed after update 3, after 9: 1 of 2 arrays differ, fc.weight first", {})
    assert not judges.resume(3, [9, 9], {"step": state["step"]}, state).ok
    assert judges.resume(3, [8, 9], state, state).found == "killed after update 3, it ended after 8 instead of 9"


def test_speed():
    updates = [{"loss": 1.0, "step_seconds": 0.5, "data_seconds": 0.05} for _ in range(6)]
    updates[0] = {"loss": 1.0, "step_seconds": 20.0, "data_seconds": 5.0}  # compiles: does not count
    answer = judges.speed(updates, 6, 8, "fp32")
    assert answer.ok
    assert answer.found.startswith("16.0 images/s in fp32, batch 8; 10% of the time waiting for data; the first update")
    assert answer.numbers["images_per_second"] == 16
    assert answer.numbers["waiting_share"] == pytest.approx(0.1)
    assert not judges.speed(updates[:5], 6, 8, "fp32").ok
    updates[4]["loss"] = None
    assert not judges.speed(updates, 6, 8, "fp32").ok
