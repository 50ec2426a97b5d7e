"""The report against scikit-learn, and its files' bytes."""

import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import mindspore
import numpy as np
import pytest

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.loaded_net import LoadedNet
from resnet_fn.evaluation.scoring import score, summarise
from resnet_fn.models.build import build_net
from resnet_fn.report import plots
from resnet_fn.report.page import page
from resnet_fn.report.writer import build_report, predictions_csv, write_report
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.eval_step import make_eval_step


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def evaluation():
    """An untrained net on the digits: every figure is there, and mistakes aplenty."""
    from resnet_fn.runtime import process

    process.start("CPU")
    recipe, dataset = Recipe(model="resnet8", image_size=8), load_digits()
    net = build_net(recipe, dataset.input)
    checkpoint = Checkpoint(Path("runs/a<b/checkpoints/step-00000003"), {}, {}, {"update": 3})
    trained = LoadedNet(net, recipe, dataset.input, checkpoint)
    scores = score(make_eval_step(net, with_logits=True), dataset, 128)
    options = {"which": "last", "tta": "none", "ema": False, "image_size": 8}
    return Evaluation(trained, dataset, scores, options, Workers())


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


def test_files_are_the_same_bytes_twice_and_hold_the_figures(evaluation):
    first = write_report(evaluation, Path("one"))
    write_report(evaluation, Path("two/deeper"))
    for name in ("report.html", "report.json", "predictions.csv"):
        assert Path("one", name).read_bytes() == Path("two/deeper", name).read_bytes(), name
    assert json.loads(Path("one/report.json").read_text()) == first
    rows = list(csv.DictReader(io.StringIO(predictions_csv(evaluation))))
    assert [row["label"] for row in rows] == [str(label) for label in evaluation.dataset.test.labels]
    assert sum(int(row["right"]) for row in rows) / 360 == first["top1"]
    assert rows[7]["name"] == "test-00007"
    assert float(rows[7]["probability1"]) >= float(rows[7]["probability2"]) > 0
    worst = first["mistakes"][0]
    assert rows[worst["index"]]["prediction"] == worst["prediction"] != worst["label"]


def test_the_page_needs_no_network_and_escapes_names(evaluation):
    text = page(build_report(evaluation), {})
    assert "run a&lt;b, update 3" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "url(" not in text
    assert "<img" not in text  # without matplotlib: tables
    assert text.count("<table>") == 5  # calibration, confusion, confused pairs, classes, mistakes


def test_pictures_are_inside_the_page(evaluation):
    report = build_report(evaluation)
    drawn = plots.draw_all(report, evaluation)
    assert set(drawn) == {"confusion", "reliability", "mistakes"}
    assert page(report, drawn).count('src="data:image/png;base64,') == 3


def test_a_broken_net_gives_a_report_without_nan(evaluation):
    scores = evaluation.scores
    nothing = np.full_like(scores.loss, np.nan)
    broken = dataclasses.replace(
        evaluation, scores=scores._replace(loss=nothing, rank=np.full_like(scores.rank, 10), top=scores.top * 0)
    )
    report = build_report(broken)
    assert report["loss"] is None
    assert report["top1"] == 0.0
    assert "not finite" in page(report, {})
    json.dumps(report, allow_nan=False)
    assert np.isnan(summarise(broken.scores)["loss"])


def test_a_folder_that_cannot_be_written_is_named(evaluation):
    Path("file").touch()
    with pytest.raises(ValueError, match=r"^report: file/below cannot be written \(Not a directory\); give another"):
        write_report(evaluation, Path("file/below"))
