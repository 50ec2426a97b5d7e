"""This module writes the report of an evaluation: report.json, predictions.csv and report.html.

The files do not depend on the batch size or the number of workers. A report's date is the
checkpoint's date.
"""

import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.checkpoint.run_folder import run_of
from resnet_fn.config.printing import in_utf8
from resnet_fn.config.values import to_dict
from resnet_fn.data.cells import table_writer, to_cell
from resnet_fn.data.dataset import Arrays
from resnet_fn.evaluation import metrics
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.task import summarise
from resnet_fn.report import plots
from resnet_fn.report.page import DOCUMENT, Pictures, page
from resnet_fn.report.pictures import class_maps, heat_picture, sample_name, sample_pictures
from resnet_fn.runtime.disk import finite_or_null, writing
from resnet_fn.runtime.outputs import begins_with, check_output, has_keys, place_to_write
from resnet_fn.telemetry import read_log

MISTAKES = 36
_COLUMNS = ("index", "name", "label", "prediction", "right", "loss")
# The files of a report, and how to recognise them.
_FILES = {
    "report.json": has_keys(("checkpoint", "averages", "gallery")),
    "predictions.csv": begins_with(",".join(_COLUMNS)),
    "report.html": begins_with(DOCUMENT),
}


def check_report(field: str, folder: Path) -> None:
    """Raise ValueError if a report in `folder` would replace a file that is not of a report."""
    for name, is_ours in _FILES.items():
        check_output(field, folder / name, is_ours)


def write_report(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Write the files of the report on rank 0, and return the contents of report.json on every
    rank.

    Raises ValueError if the folder cannot be written, or has other files of these names.
    """
    report = build_report(evaluation)
    if evaluation.workers.is_main:
        files = {
            "report.json": json.dumps(report, indent=1, allow_nan=False) + "\n",
            "predictions.csv": predictions_csv(evaluation),
            "report.html": page(report, plots.draw_all(report), _pictures(evaluation, report)),
        }
        check_report("report", folder)
        with writing(f"report: {folder}", "give another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                with place_to_write(folder / name) as temporary:
                    temporary.write_text(text, encoding="utf-8")
    return report


def _pictures(evaluation: Evaluation, report: dict[str, Any]) -> Pictures:
    dataset = evaluation.dataset
    scores = evaluation.scores
    assert evaluation.trained.checkpoint
    log = run_of(evaluation.trained.checkpoint.path) / "metrics.jsonl"
    curves = plots.draw_run(read_log(log), report["checkpoint"]["update"]) if log.is_file() else []
    if isinstance(dataset.test, Arrays):  # not images
        return Pictures(curves=curves)
    mistakes = scores.task.mistakes(scores, dataset.test.labels, MISTAKES)
    shown = [sample["index"] for row in report["gallery"] for sample in row["samples"]]
    of_mistakes = sample_pictures(dataset, [index for index, _, _ in mistakes])
    heatmaps: list[bytes] = []
    if mistakes:
        indices, predicted, _ = zip(*mistakes, strict=True)
        batches = np.array(indices)[:, None]
        images = np.concatenate([*dataset.test.eval_images(batches, dataset.input)])
        # A missed class X, "not X" in the report, gets the map of the evidence for X.
        maps = class_maps(evaluation.trained.net, images, predicted)
        heatmaps = [
            heat_picture(picture, heat) for picture, heat in zip(of_mistakes, maps, strict=True)
        ]
    return Pictures(of_mistakes, heatmaps, sample_pictures(dataset, shown), curves)


# Long: one entry for each part of report.json.
def build_report(evaluation: Evaluation) -> dict[str, Any]:
    """Return the contents of report.json, in which None replaces values that are not finite."""
    scores = evaluation.scores
    trained = evaluation.trained
    task = scores.task
    classes = [in_utf8(name) for name in trained.input.classes]
    labels = evaluation.dataset.test.labels
    by_class = task.by_class(scores, labels, len(classes))
    assert trained.checkpoint
    state = trained.checkpoint.state
    balance = state["class_balance"] or [{}] * len(classes)
    written = trained.checkpoint.path
    date = ""
    if written.exists():
        date = time.strftime("%Y-%m-%d", time.gmtime(written.stat().st_mtime))
    curves = []
    areas = np.full(len(classes), np.nan)
    if scores.probabilities is not None:
        positive = task.positive(labels, len(classes))
        curves = metrics.precision_recall_curves(positive, scores.probabilities)
        areas = (
            metrics.average_precisions(positive, scores.probabilities)
            if scores.areas is None
            else scores.areas
        )
    return {
        **finite_or_null(summarise(scores)),
        "checkpoint": {
            "run": run_of(written).name,
            "update": state["update"],
            "recipe": trained.recipe.name,
            "model": trained.recipe.model,
            "dataset": trained.recipe.dataset,
            "label_smoothing": trained.recipe.label_smoothing,
            "date": date,
        },
        "data": {
            "folder": evaluation.dataset.input.data_dir,
            "training_images": state["feed"]["samples"],
            "validates": evaluation.dataset.validates,
        },
        "recipe": to_dict(trained.recipe),
        "options": evaluation.options,
        "averages": metrics.averages(by_class, task.every_class),
        "classes": [
            {
                "name": name,
                **{key: values[index].item() for key, values in by_class.items()},
                **balance[index],
                "average_precision": finite_or_null(areas[index].item()),
            }
            for index, name in enumerate(classes)
        ],
        "mean_average_precision": finite_or_null(metrics.mean_average_precision(areas)),
        "curves": curves,
        **task.report(scores, labels, classes),
        "gallery": [
            {
                "class": classes[label],
                "samples": [_sample(evaluation, index, label, classes) for index in samples],
            }
            for label, samples in metrics.gallery(
                labels, task.doubt(scores), by_class["f1"].tolist()
            ).items()
        ],
        "mistakes": [
            {
                "index": index,
                "name": sample_name(evaluation.dataset, index),
                "label": _names(_classes_of(evaluation, index), classes),
                "prediction": f"{'not ' * (predicted in _classes_of(evaluation, index))}{classes[predicted]}",
                "confidence": confidence,
            }
            for index, predicted, confidence in task.mistakes(scores, labels, MISTAKES)
        ],
    }


def _classes_of(evaluation: Evaluation, index: int) -> np.ndarray:
    # for all samples it would be [N, classes]
    labels = evaluation.dataset.test.labels[index : index + 1]
    return np.flatnonzero(evaluation.scores.task.positive(labels, len(evaluation.dataset.classes)))


def _names(chosen: np.ndarray, classes: Sequence[str]) -> str:
    return ";".join(classes[index] for index in chosen)


def _sample(
    evaluation: Evaluation, index: int, label: int, classes: Sequence[str]
) -> dict[str, Any]:
    scores = evaluation.scores
    task = scores.task
    probability, right = task.of_class(scores, index, label)
    return {
        "index": index,
        "name": sample_name(evaluation.dataset, index),
        "prediction": _names(task.predicted(scores, index), classes),
        "right": right,
        "probability": finite_or_null(probability),
    }


def predictions_csv(evaluation: Evaluation) -> str:
    """Return CSV text with a row for each validation sample, in the order of the data set."""
    scores = evaluation.scores
    classes = evaluation.trained.input.classes
    top = scores.top
    task = scores.task
    assert top is not None
    text = io.StringIO()
    writer = table_writer(text)
    ranks = range(top.shape[2])
    header = [*_COLUMNS, task.wrong_by]
    for rank in ranks:
        header += [f"class{rank + 1}", f"probability{rank + 1}"]
    writer.writerow(header)
    for index in range(len(scores.rank)):
        row: list[object] = [index, to_cell(sample_name(evaluation.dataset, index))]
        row += [
            to_cell(_names(chosen, classes))
            for chosen in (_classes_of(evaluation, index), task.predicted(scores, index))
        ]
        row += [int(scores.rank[index] < 1), f"{scores.loss[index]:.6g}", int(scores.rank[index])]
        for rank in ranks:
            row += [to_cell(classes[int(top[index, 0, rank])]), f"{top[index, 1, rank]:.6g}"]
        writer.writerow(row)
    return text.getvalue()
