"""Write an evaluation's report: report.json, predictions.csv and one self-contained report.html.

The same checkpoint and options give the same bytes, for any number of workers and any batch size: nothing in the
files depends on the clock, the machine or the order of the work.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.json_text import finite_or_null
from resnet_fn.data.balance import treatment
from resnet_fn.evaluation import metrics
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.scoring import scores_by_class, summarise
from resnet_fn.report import plots
from resnet_fn.report.by_class import gallery, precision_recall_curves, wrong_statements
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
        named = [said for _, said, _ in _mistakes(evaluation)]  # of "not X", X: a map knows evidence for a class alone
        maps = class_maps(evaluation.trained.net, images, named)
        heatmaps = [heat_picture(picture, heat) for picture, heat in zip(of_mistakes, maps, strict=True)]
    return Pictures(of_mistakes, heatmaps, sample_pictures(dataset, shown))


def build_report(evaluation: Evaluation) -> dict[str, Any]:
    """All metrics as JSON types; one that is not finite is None."""
    scores, trained = evaluation.scores, evaluation.trained
    classes, positive = [printable(name) for name in trained.input.classes], _positive(evaluation)
    by_class = scores_by_class(scores, evaluation.dataset.test.labels, len(classes))
    weights, training = trained.checkpoint.state.get("class_weights", []), evaluation.dataset.train.labels
    treated = treatment(trained.recipe.sampling, weights, len(classes), training) if len(training) else []
    treated = treated or [{}] * len(classes)
    curves = [] if scores.probabilities is None else precision_recall_curves(positive, scores.probabilities)
    areas = _areas(evaluation)
    one_of_two = len(classes) == 2 and scores.areas is None
    of_second = scores.probabilities[:, 1] if scores.probabilities is not None and one_of_two else None
    doubt = scores.loss[:, None] if scores.areas is None else -_probabilities(evaluation)
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
        "averages": metrics.averages(by_class, every_class=scores.areas is not None),
        "classes": [
            {
                "name": name,
                **{key: values[index].item() for key, values in by_class.items()},
                **treated[index],
                "average_precision": area,
            }
            for index, (name, area) in enumerate(zip(classes, finite_or_null(areas.tolist()), strict=True))
        ],
        "mean_average_precision": finite_or_null(metrics.mean_average_precision(areas)),
        "curves": curves,
        "thresholds": [] if of_second is None else metrics.threshold_table(positive[:, 1], of_second),
        "gallery": [
            {"class": classes[label], "samples": [_sample(evaluation, index, label) for index in samples]}
            for label, samples in gallery(positive, doubt, by_class["f1"].tolist()).items()
        ],
        **_of_one_class(evaluation, classes),
        "mistakes": [
            {
                "index": index,
                "name": sample_name(evaluation.dataset, index),
                "label": _names(positive[index], classes),
                "prediction": f"{'not ' * (scores.areas is not None and bool(positive[index, said]))}{classes[said]}",
                "confidence": confidence,
            }
            for index, said, confidence in _mistakes(evaluation)
        ],
    }


def _positive(evaluation: Evaluation) -> np.ndarray:
    """Which samples are of which class, bool [N, classes]."""
    labels = evaluation.dataset.test.labels
    return labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(len(evaluation.trained.input.classes))


def _areas(evaluation: Evaluation) -> np.ndarray:
    """Each class's average precision, float64 [classes]; NaN without samples, and where no probabilities were kept."""
    scores = evaluation.scores
    if scores.areas is not None:
        return scores.areas
    if scores.probabilities is None:
        return np.full(len(evaluation.trained.input.classes), np.nan)
    return metrics.average_precisions(_positive(evaluation), scores.probabilities)


def _probabilities(evaluation: Evaluation) -> np.ndarray:
    assert evaluation.scores.probabilities is not None  # `score` keeps them where samples have any number of classes
    return evaluation.scores.probabilities


def _names(chosen: np.ndarray, classes: Sequence[str]) -> str:
    return ";".join(classes[place] for place in np.flatnonzero(chosen))


def _of_one_class(evaluation: Evaluation, classes: Sequence[str]) -> dict[str, Any]:
    """What is told where a sample has one class; None or nothing where it has any number."""
    scores = evaluation.scores
    if scores.areas is not None:
        return {"calibration": None, "confusion": None, "confused": []}
    confusion = metrics.confusion_matrix(evaluation.dataset.test.labels, scores.prediction, len(classes))
    confused = [
        {"label": classes[label], "prediction": classes[prediction], "count": count}
        for label, prediction, count in metrics.confused_pairs(confusion, 20)
    ]
    calibration = metrics.calibration(confidence_of(evaluation), scores.rank < 1)
    return {"calibration": calibration, "confusion": confusion.tolist(), "confused": confused}


def _mistakes(evaluation: Evaluation) -> list[tuple[int, int, float]]:
    """The most confident mistakes: sample, the class that it is said to be, or not to be, and the confidence."""
    scores = evaluation.scores
    if scores.areas is not None:
        finite = np.isfinite(scores.loss)  # the mean over all classes: NaN or infinite if one logit is
        return wrong_statements(_positive(evaluation), _probabilities(evaluation), finite, MISTAKES)
    confidence = confidence_of(evaluation)
    places = metrics.confident_mistakes(confidence, scores.rank < 1, MISTAKES).tolist()
    return [(place, int(scores.prediction[place]), float(confidence[place])) for place in places]


def _sample(evaluation: Evaluation, index: int, label: int) -> dict[str, Any]:
    scores = evaluation.scores
    if scores.areas is None:
        right, own = scores.rank[index] < 1, float(np.exp(-np.float64(scores.loss[index])))
    else:
        own = float(_probabilities(evaluation)[index, label])
        right = own >= metrics.SAID_FROM
    return {
        "index": index,
        "name": sample_name(evaluation.dataset, index),
        "prediction": _prediction(evaluation, index),
        "right": bool(right),
        "probability": finite_or_null(own),  # of the class that it stands for
    }


def _prediction(evaluation: Evaluation, index: int) -> str:
    """The class that a sample is taken for, or the classes."""
    scores, classes = evaluation.scores, evaluation.trained.input.classes
    if scores.areas is None:
        return printable(classes[scores.prediction[index]])
    return printable(_names(_probabilities(evaluation)[index] >= metrics.SAID_FROM, classes))


def confidence_of(evaluation: Evaluation) -> np.ndarray:
    """The probability of each sample's prediction, float32 [N]; 0 where a logit is not finite."""
    top = evaluation.scores.top
    if top is None:
        raise ValueError("report: the evaluation kept no probabilities; make its step with with_logits=True")
    return top[:, 1, 0]


def predictions_csv(evaluation: Evaluation) -> str:
    """One row for each test sample, in the data set's order."""
    scores, classes = evaluation.scores, [printable(name) for name in evaluation.trained.input.classes]
    top, positive = scores.top, _positive(evaluation)
    assert top is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    places = range(top.shape[2])
    header = ["index", "name", "label", "prediction", "right", "loss", "rank" if scores.areas is None else "wrong"]
    writer.writerow(header + [f"{what}{place + 1}" for place in places for what in ("class", "probability")])
    for index in range(len(scores.rank)):
        row: list[object] = [index, sample_name(evaluation.dataset, index), _names(positive[index], classes)]
        row += [_prediction(evaluation, index), int(scores.rank[index] < 1)]
        row += [f"{scores.loss[index]:.6g}", int(scores.rank[index])]
        for place in places:
            row += [classes[int(top[index, 0, place])], f"{top[index, 1, place]:.6g}"]
        writer.writerow(row)
    return text.getvalue()
