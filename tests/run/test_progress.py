"""Which evaluation is best, how patience counts, and what is said of both."""

import pytest

from resnet_fn.run.console import describe_best
from resnet_fn.run.resume import note_evaluation
from resnet_fn.run.session import Progress


def noted(monitor, values, losses=None):
    progress, counts, bests = Progress(), [], []
    for update, value in enumerate(values, 1):
        progress.update = update
        loss = losses[update - 1] if losses else 1.0
        note_evaluation(progress, monitor, {"top1": 0.5, "loss": loss, monitor: value})
        counts.append(progress.without_gain)
        bests.append(progress.best and progress.best["update"])
    return bests, counts


def test_the_highest_is_best_and_of_equal_ones_the_last_but_that_is_no_gain():
    assert noted("top1", [0.5, 0.4, 0.5, 0.6, 0.6]) == ([1, 1, 3, 4, 5], [0, 1, 2, 0, 1])
    assert noted("macro_f1", [0.5, 0.6]) == ([1, 2], [0, 0])


def test_of_the_loss_the_lowest():
    assert noted("loss", [2.0, 3.0, 2.0, 1.0]) == ([1, 1, 3, 4], [0, 1, 2, 0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_never_best(bad):
    assert noted("top1", [0.5, 0.9, 0.6], [1.0, bad, 1.0]) == ([1, 1, 3], [0, 1, 0])
    assert noted("loss", [bad, 2.0, bad]) == ([None, 2, 2], [1, 0, 1])


def test_a_best_in_words():
    best = {"top1": 0.975, "macro_f1": 0.5, "loss": 0.12345, "update": 110}
    last = {**best, "top1": 0.9, "macro_f1": 0.25, "loss": 1.0}
    assert describe_best("top1", best, last) == "best top-1 97.50% (update 110), last 90.00%"
    assert describe_best("macro_f1", best, last) == "best macro F1 50.00% (update 110), last 25.00%"
    assert describe_best("loss", best, last) == "best loss 0.1235 (update 110), last 1.0000"


def test_without_top1_the_best_is_what_is_monitored_alone():
    progress = Progress(update=3)
    note_evaluation(progress, "map", {"loss": 1.0, "map": 0.5})
    assert progress.best == {"map": 0.5, "update": 3}
    assert describe_best("map", progress.best, {"map": 0.25}) == "best mAP 50.00% (update 3), last 25.00%"
