"""Write an evaluation's report: report.json, predictions.csv and one self-contained report.html.

The same checkpoint and options give the same bytes, for any number of workers and any batch size: nothing in the
files depends on the clock, the machine or the order of the work.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.json_text import finite_or_null
from resnet_fn.data.balance import treatment
from resnet_fn.evaluation import metrics
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.scoring import summarise
from resnet_fn.report import plots
from resnet_fn.report.by_class import gallery, precision_recall_curves
from resnet_fn.report.heatmaps import class_maps, heat_picture
from resnet_fn.report.page import page
from resnet_fn.report.picture_grid import Pictures
from resnet_fn.report.samples import printable, sample_name, sample_pictures

MISTAKES = 36


def write_report(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Write the report's three files. On ranks other than 0 nothing is written.

    Args:
        evaluation: see `evaluate_in_detail`.
        folder: made if it is missing; files of the same names in it are replaced.

    Returns:
        What report.json holds (docs/evaluation.md).

    Raises:
        ValueError: the folder cannot be written.
    """
    report = build_report(evaluation)
    if evaluation.workers.is_main:
        files = {
            "report.json": json.dumps(report, indent=1, allow_nan=False) + "\n",
            "predictions.csv": predictions_csv(evaluation),
            "report.html": page(report, plots.draw_all(report), _pictures(evaluation, report)),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ValueError(f"report: {folder} cannot be written ({error.strerror}); give another folder") from None
    return report


def _pictures(evaluation: Evaluation, report: dict[str, Any]) -> Pictures:
    dataset = evaluation.dataset
    mistakes = [mistake["index"] for mistake in report["mistakes"]]
    shown = [sample["index"] for row in report["gallery"] for sample in row["samples"]]
    of_mistakes = sample_pictures(dataset, mistakes)
    heatmaps: list[bytes] = []
    if mistakes:
        images = np.concatenate([*dataset.test.eval_images([np.array([index]) for index in mistakes], dataset.input)])
        predictions = [int(evaluation.scores.prediction[index]) for index in mistakes]
        maps = class_maps(evaluation.trained.net, images, predictions)
        heatmaps = [heat_picture(picture, heat) for picture, heat in zip(of_mistakes, maps, strict=True)]
    return Pictures(of_mistakes, heatmaps, sample_pictures(dataset, shown))


def build_report(evaluation: Evaluation) -> dict[str, Any]:
    """All metrics as JSON types; one that is not finite is None."""
    scores, trained = evaluation.scores, evaluation.trained
    labels, classes = evaluation.dataset.test.labels, [printable(name) for name in trained.input.classes]
    confidence, right = confidence_of(evaluation), scores.rank < 1
    confusion = metrics.confusion_matrix(labels, scores.prediction, len(classes))
    by_class = metrics.class_scores(confusion)
    weights, training = trained.checkpoint.state.get("class_weights", []), evaluation.dataset.train.labels
    treated = treatment(trained.recipe.sampling, weights, len(classes), training) if len(training) else []
    treated = treated or [{}] * len(classes)
    curves = [] if scores.probabilities is None else precision_recall_curves(labels, scores.probabilities)
    precisions = [curve.pop("average_precision") for curve in curves] or [None] * len(classes)
    known = [value for value in precisions if value is not None]
    of_second = scores.probabilities[:, 1] if scores.probabilities is not None and len(classes) == 2 else None
    return {
        **finite_or_null(summarise(scores)),
        "checkpoint": {
            "run": trained.checkpoint.path.resolve().parent.parent.name,
            "update": trained.checkpoint.state["update"],
            "recipe": trained.recipe.name,
            "model": trained.recipe.model,
            "dataset": trained.recipe.dataset,
            "label_smoothing": trained.recipe.label_smoothing,
        },
        "options": evaluation.options,
        "averages": metrics.averages(by_class),
        "classes": [
            {
                "name": name,
                **{key: values[index].item() for key, values in by_class.items()},
                **treated[index],
                "average_precision": area,
            }
            for index, (name, area) in enumerate(zip(classes, precisions, strict=True))
        ],
        "mean_average_precision": sum(known) / len(known) if known else None,
        "curves": curves,
        "thresholds": [] if of_second is None else metrics.threshold_table(labels == 1, of_second),
        "gallery": [
            {"class": classes[label], "samples": [_sample(evaluation, index) for index in samples]}
            for label, samples in gallery(labels, scores.loss, by_class["f1"].tolist()).items()
        ],
        "calibration": metrics.calibration(confidence, right),
        "confusion": confusion.tolist(),
        "confused": [
            {"label": classes[label], "prediction": classes[prediction], "count": count}
            for label, prediction, count in metrics.confused_pairs(confusion, 20)
        ],
        "mistakes": [
            {
                "index": int(index),
                "name": sample_name(evaluation.dataset, int(index)),
                "label": classes[labels[index]],
                "prediction": classes[scores.prediction[index]],
                "confidence": float(confidence[index]),
            }
            for index in metrics.confident_mistakes(confidence, right, MISTAKES)
        ],
    }


def _sample(evaluation: Evaluation, index: int) -> dict[str, Any]:
    scores = evaluation.scores
    return {
        "index": index,
        "name": sample_name(evaluation.dataset, index),
        "prediction": printable(evaluation.trained.input.classes[scores.prediction[index]]),
        "right": bool(scores.rank[index] < 1),
        "probability": finite_or_null(float(np.exp(-np.float64(scores.loss[index])))),  # of its own class
    }


def confidence_of(evaluation: Evaluation) -> np.ndarray:
    """The probability of each sample's prediction, float32 [N]; 0 where a logit is not finite."""
    top = evaluation.scores.top
    if top is None:
        raise ValueError("report: the evaluation kept no probabilities; make its step with with_logits=True")
    return top[:, 1, 0]


def predictions_csv(evaluation: Evaluation) -> str:
    """One row for each test sample, in the data set's order."""
    scores, classes = evaluation.scores, [printable(name) for name in evaluation.trained.input.classes]
    top = scores.top
    assert top is not None
    split = evaluation.dataset.test
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    places = range(top.shape[2])
    header = ["index", "name", "label", "prediction", "right", "loss", "rank"]
    writer.writerow(header + [f"{what}{place + 1}" for place in places for what in ("class", "probability")])
    for index in range(len(split)):
        row: list[object] = [index, sample_name(evaluation.dataset, index), classes[split.labels[index]]]
        row += [classes[scores.prediction[index]], int(scores.rank[index] < 1)]
        row += [f"{scores.loss[index]:.6g}", int(scores.rank[index])]
        for place in places:
            row += [classes[int(top[index, 0, place])], f"{top[index, 1, place]:.6g}"]
        writer.writerow(row)
    return text.getvalue()
