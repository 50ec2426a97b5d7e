import dataclasses
import signal

import mindspore
import numpy as np
import pytest

from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation import scoring
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.scoring import StoppedError, score
from resnet_fn.evaluation.task import ANY_CLASSES, ONE_CLASS, Scores, describe_scores, summarise
from resnet_fn.models import create_model
from resnet_fn.runtime.workers import Workers

pytestmark = pytest.mark.usefixtures("device")


def first_classes(classes, labels=None):
    """The digits with so many classes, and a net's evaluation step for them."""
    mindspore.set_seed(3)
    step = make_eval_step(create_model("resnet8", num_classes=classes, in_channels=1), with_logits=True)
    digits = load_digits()
    labels = digits.test.labels % classes if labels is None else labels
    spec = dataclasses.replace(digits.input, classes=digits.classes[:classes])
    return step, dataclasses.replace(digits, test=dataclasses.replace(digits.test, labels=labels), input=spec)


def test_any_batch_size_gives_the_same_bits():
    step, digits = first_classes(10)
    scores = [score(step, digits, batch_size) for batch_size in (256, 7, 10_000)]
    for other in scores[1:]:
        assert all((a == b).all() for a, b in zip(scores[0][:3], other[:3], strict=True))
    figures = summarise(scores[0])
    assert figures["count"] == 360
    assert 0 < figures["top1"] < figures["top5"] < 1


def test_an_evaluation_is_left_for_a_signal():
    stop_flags = iter(np.float32([[0, 0, 0], [0, 1, 0]])).__next__
    with pytest.raises(StoppedError, match="SIGINT") as stopped:
        score(first_classes(10)[0], load_digits(), 256, stop_flags=stop_flags)
    assert stopped.value.number == signal.SIGINT


# With 2 or 3 columns a matrix product's bits depend on the row; of 8 workers some have no samples.
@pytest.mark.parametrize(("size", "classes"), [(3, 10), (8, 3)])
def test_any_number_of_workers_gives_the_same_bits(size, classes, monkeypatch):
    """Each rank's rows, added up as the all-reduce does (real processes: tests/run/test_loop.py)."""
    step, digits = first_classes(classes)
    alone, parts = score(step, digits, 64), []

    def catch(rows, workers):
        if rows.ndim == 1:  # nobody leaves
            return rows
        parts.append(rows)
        return np.concatenate((np.ones((360, 4), np.float32), rows[:, 4:]), 1)

    monkeypatch.setattr(scoring, "sum_over_ranks", catch)
    for rank in range(size):
        score(step, digits, 50, Workers(rank, size))
    rows = sum(parts)
    expected = np.stack([alone.loss, alone.prediction, alone.rank, np.ones(360)], 1)
    assert (rows[:, :4] == expected).all()
    assert (rows[:, 4:].reshape(360, 2, min(5, classes)) == alone.top).all()


def test_top_classes_are_the_softmax_in_order():
    logits = np.float32([[0, 1, 1, -2], [np.nan, 1, 0, 0]])
    top = ONE_CLASS.top_classes(logits, 3)
    exponentials = np.exp(np.float64([1, 1, 0, -2]))
    assert top[0].tolist()[:3] == [1, 2, 0]  # equal logits rank by class
    np.testing.assert_allclose(top[0, 3:], exponentials[:3] / exponentials.sum(), rtol=1e-7)
    assert top[1, 3:].tolist() == [0, 0, 0]


def test_summary_is_the_definition():
    scores = Scores(np.float32([0.5, 1.5, 1.0, 5.0]), np.int32([0, 1, 2, 3]), np.int32([0, 4, 1, 5]))
    assert summarise(scores) == {"loss": 2.0, "top1": 0.25, "top5": 0.75, "count": 4}


def test_top_5_needs_more_than_five_classes():
    metrics = {"loss": 1.5, "top1": 0.5, "top5": 1.0, "count": 4}
    assert describe_scores(metrics, "abcde") == "loss 1.5000, top-1 50.00%"
    assert describe_scores(metrics, "abcdef") == "loss 1.5000, top-1 50.00%, top-5 100.00%"


def test_with_several_classes_any_number_of_workers_gives_the_same_bits(monkeypatch):
    labels = (np.random.default_rng(0).random((360, 3)) < 0.4).astype(np.float32)
    step, digits = first_classes(3, labels)
    alone, sums = score(step, digits, 64), {}

    def add(rows, workers):
        if rows.ndim == 1:
            return rows
        sums[rows.shape[1]] = sums.get(rows.shape[1], 0) + rows
        return sums[rows.shape[1]] if workers.rank == 2 else np.ones_like(rows)

    monkeypatch.setattr(scoring, "sum_over_ranks", add)
    shared = [score(step, digits, 50, Workers(rank, 3)) for rank in range(3)][-1]
    assert all((a == b).all() for a, b in zip(alone, shared, strict=True))
    assert summarise(shared) == summarise(alone)
    # One sample by its definition: the sigmoid of its logits, the mean binary cross-entropy, wrong decisions.
    probability = alone.probabilities.astype(np.float64)
    losses = -np.where(labels > 0, np.log(probability), np.log(1 - probability)).mean(1)
    np.testing.assert_allclose(alone.loss, losses, rtol=1e-4)
    assert alone.rank.tolist() == ((probability >= 0.5) != (labels > 0)).sum(1).tolist()
    assert ANY_CLASSES.by_class(alone, labels, 3)["support"].tolist() == labels.sum(0).tolist()
    assert summarise(alone)["map"] == pytest.approx(alone.areas.mean(), rel=1e-12)
    assert set(summarise(alone)) == {"loss", "map", "count"}
    assert describe_scores({"loss": 0.5, "map": 0.25, "count": 4}, "abcdef") == "loss 0.5000, mAP 25.00%"


def test_probabilities_of_several_classes_keep_their_digits_at_both_ends():
    logits = np.float32([[0, -80, 30], [np.nan, 1, 0]])
    probabilities = ANY_CLASSES.probabilities(logits)
    np.testing.assert_allclose(probabilities[0], [0.5, np.exp(-80.0), 1 / (1 + np.exp(-30.0))], rtol=1e-12)
    assert probabilities[1].tolist() == [0, 0, 0]
    assert ANY_CLASSES.top_classes(logits, 2)[0].tolist() == [2, 0, np.float32(probabilities[0, 2]), 0.5]
