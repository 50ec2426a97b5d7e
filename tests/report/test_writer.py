"""The report against scikit-learn, and its files' bytes."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import mindspore
import numpy as np
import pytest

from resnet_fn.evaluation.scoring import summarise
from resnet_fn.report.writer import build_report, predictions_csv, write_report


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def test_report_agrees_with_scikit_learn_on_a_nets_own_logits(evaluation):
    import sklearn.metrics as metrics

    from resnet_fn.data.eval_batches import eval_batches

    dataset = evaluation.dataset
    ((images, labels, _),) = eval_batches(dataset.test, dataset.input, 360)
    logits = evaluation.trained.net(mindspore.Tensor(images)).asnumpy().astype(np.float64)
    report = build_report(evaluation)
    assert report["loss"] == pytest.approx(metrics.log_loss(labels, softmax(logits)), rel=1e-5)
    assert report["top1"] == metrics.accuracy_score(labels, logits.argmax(1))
    assert report["top5"] == metrics.top_k_accuracy_score(labels, logits, k=5, labels=range(10))
    assert report["confusion"] == metrics.confusion_matrix(labels, logits.argmax(1), labels=range(10)).tolist()


def test_files_are_the_same_bytes_twice_and_hold_the_metrics(evaluation):
    first = write_report(evaluation, Path("one"))
    write_report(evaluation, Path("two/deeper"))
    for name in ("report.html", "report.json", "predictions.csv"):
        assert Path("one", name).read_bytes() == Path("two/deeper", name).read_bytes(), name
    assert json.loads(Path("one/report.json").read_text()) == first
    assert Path("one/report.html").read_text().count("<img ") == 2 + len(first["mistakes"]) == 38
    assert first["checkpoint"]["label_smoothing"] == evaluation.trained.recipe.label_smoothing == 0.1
    rows = list(csv.DictReader(io.StringIO(predictions_csv(evaluation))))
    assert [row["label"] for row in rows] == [str(label) for label in evaluation.dataset.test.labels]
    assert sum(int(row["right"]) for row in rows) / 360 == first["top1"]
    assert rows[7]["name"] == "test-00007"
    assert float(rows[7]["probability1"]) >= float(rows[7]["probability2"]) > 0
    worst = first["mistakes"][0]
    assert rows[worst["index"]]["prediction"] == worst["prediction"] != worst["label"]


def test_a_broken_net_gives_a_report_without_nan(evaluation):
    scores = evaluation.scores
    nothing = np.full_like(scores.loss, np.nan)
    broken = dataclasses.replace(
        evaluation, scores=scores._replace(loss=nothing, rank=np.full_like(scores.rank, 10), top=scores.top * 0)
    )
    report = build_report(broken)
    assert report["loss"] is None
    assert report["top1"] == 0.0
    json.dumps(report, allow_nan=False)
    assert np.isnan(summarise(broken.scores)["loss"])


def test_a_folder_that_cannot_be_written_is_named(evaluation):
    Path("file").touch()
    with pytest.raises(ValueError, match=r"^report: file/below cannot be written \(Not a directory\); give another"):
        write_report(evaluation, Path("file/below"))
