"""The files of a report, and that a failure leaves none by half."""

import csv
import dataclasses
import io
import json
import os
from pathlib import Path

import mindspore
import numpy as np
import pytest
import sklearn.metrics as metrics
from scipy.special import softmax

from resnet_fn.data.dataset import Split, eval_batches
from resnet_fn.evaluation.metrics import average_precisions
from resnet_fn.evaluation.task import summarise
from resnet_fn.report.writer import build_report, predictions_csv, write_report


def test_report_agrees_with_scikit_learn_on_real_logits(evaluation):
    dataset = evaluation.dataset
    ((images, labels, _),) = eval_batches(dataset.test, dataset.input, 360)
    logits = evaluation.trained.net(mindspore.Tensor(images)).asnumpy().astype(np.float64)
    probabilities = softmax(logits, axis=1)
    report = build_report(evaluation)
    assert report["loss"] == pytest.approx(metrics.log_loss(labels, probabilities), rel=1e-5)
    assert report["top1"] == metrics.accuracy_score(labels, logits.argmax(1))
    assert report["top5"] == metrics.top_k_accuracy_score(labels, logits, k=5, labels=range(10))
    area = metrics.average_precision_score(labels == 0, probabilities[:, 0].astype(np.float32))
    assert report["classes"][0]["average_precision"] == pytest.approx(area, abs=1e-12)
    confusion = metrics.confusion_matrix(labels, logits.argmax(1), labels=range(10))
    assert report["confusion"] == confusion.tolist()


def test_reports_are_the_same_bytes_when_written_twice(evaluation):
    evaluation.trained.checkpoint.path.mkdir(parents=True)
    os.utime(evaluation.trained.checkpoint.path, (1e9, 1e9))
    Path("runs/a<b/metrics.jsonl").write_text(
        '{"event": "eval", "update": 3, "loss": 1.0, "top1": 0.5}\n'
    )
    first = write_report(evaluation, Path("one"))
    write_report(evaluation, Path("two/deeper"))
    for name in ("report.html", "report.json", "predictions.csv"):
        assert Path("one", name).read_bytes() == Path("two/deeper", name).read_bytes(), name
    assert json.loads(Path("one/report.json").read_text()) == first
    shown = sum(len(row["samples"]) for row in first["gallery"])
    assert (len(first["mistakes"]), len(first["gallery"])) == (36, 10)
    # Three pictures of the run, two of the scores.
    assert Path("one/report.html").read_text().count("<img ") == 5 + 2 * 36 + shown
    assert (first["checkpoint"]["date"], first["data"]["training_images"]) == ("2001-09-09", 1437)
    assert first["checkpoint"]["label_smoothing"] == 0.1
    rows = list(csv.DictReader(io.StringIO(predictions_csv(evaluation))))
    assert [int(row["label"]) for row in rows] == evaluation.dataset.test.labels.tolist()
    assert sum(int(row["right"]) for row in rows) / 360 == first["top1"]
    assert rows[7]["name"] == "validation-00007"
    assert float(rows[7]["probability1"]) >= float(rows[7]["probability2"]) > 0
    worst = first["mistakes"][0]
    assert rows[worst["index"]]["prediction"] == worst["prediction"] != worst["label"]


def with_scores(evaluation, **changes):
    return dataclasses.replace(evaluation, scores=evaluation.scores._replace(**changes))


def test_a_broken_net_gives_a_report_without_nan(evaluation):
    scores = evaluation.scores
    broken = with_scores(
        evaluation,
        loss=np.full_like(scores.loss, np.nan),
        rank=np.full_like(scores.rank, 10),
        top=scores.top * 0,
    )
    report = build_report(broken)
    assert report["loss"] is None
    assert report["top1"] == 0.0
    json.dumps(report, allow_nan=False)
    assert np.isnan(summarise(broken.scores)["loss"])


def test_the_classes_counts_are_those_that_were_trained(evaluation):
    """Not those of the folder as it is now."""
    rows = [{"training_images": count} for count in range(1, 11)]
    trained = evaluation.trained
    state = {"update": 3, "class_balance": rows, "feed": {"samples": 1435}}  # two left out
    checkpoint = dataclasses.replace(trained.checkpoint, state=state)
    trained = dataclasses.replace(trained, checkpoint=checkpoint)
    report = build_report(dataclasses.replace(evaluation, trained=trained))
    assert [row["training_images"] for row in report["classes"]] == list(range(1, 11))
    assert report["data"]["training_images"] == 1435


def test_a_folder_that_cannot_be_written_is_named(evaluation):
    Path("file").touch()
    with pytest.raises(
        ValueError, match=r"^report: file/below cannot be written \(Not a directory\); give another"
    ):
        write_report(evaluation, Path("file/below"))


@pytest.fixture
def several(evaluation):
    """Digits that are even, large, both or neither; the logits of the first one are not finite."""
    digits = evaluation.dataset.test.labels
    labels = np.stack((digits % 2 == 0, digits > 4, digits > 9), 1).astype(np.float32)
    probabilities = np.random.default_rng(0).random(labels.shape).astype(np.float32)
    probabilities[0] = 0
    loss = evaluation.scores.loss.copy()
    wrong = ((probabilities >= 0.5) != (labels > 0)).sum(1).astype(np.int32)
    loss[0], wrong[0] = np.nan, 3
    areas = average_precisions(labels, probabilities)
    scored = with_scores(
        evaluation, loss=loss, rank=wrong, probabilities=probabilities, areas=areas
    )
    spec = dataclasses.replace(evaluation.trained.input, classes=("even", "large", "none"))
    trained = dataclasses.replace(evaluation.trained, input=spec)
    dataset = dataclasses.replace(
        evaluation.dataset, test=Split(evaluation.dataset.test.images, labels)
    )
    return dataclasses.replace(scored, trained=trained, dataset=dataset)


def test_non_finite_logits_are_no_mistakes(several):
    report = build_report(several)
    assert len(report["mistakes"]) == 36
    assert 0 not in [mistake["index"] for mistake in report["mistakes"]]
    assert {"even", "not even", "large", "not large", "none"} >= {
        row["prediction"] for row in report["mistakes"]
    }
    confidence = [mistake["confidence"] for mistake in report["mistakes"]]
    assert 1 > confidence[0] >= confidence[-1] > 0.5


def test_several_classes_report_the_scores_average_precisions(several):
    report = build_report(with_scores(several, areas=np.array([0.5, np.nan, 0.25])))
    assert [row["average_precision"] for row in report["classes"]] == [0.5, None, 0.25]
    assert report["map"] == report["mean_average_precision"] == 0.375


def test_without_all_probabilities_there_are_no_curves(evaluation):
    report = build_report(with_scores(evaluation, probabilities=None))
    assert (report["curves"], report["mean_average_precision"]) == ([], None)
