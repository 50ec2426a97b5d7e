"""This module computes class weights for the loss, and sample orders in which all classes are
equally frequent.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.declaration import BALANCED
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.wording import first_few
from resnet_fn.data.class_names import number_classes
from resnet_fn.data.table import CLASS, Column, fault_of_cell, read_table

_WEIGHT = Column("weight", ("weight", "weights"))


def class_weights(
    setting: str,
    classes: Sequence[str],
    labels: np.ndarray,
    sampling: str = "shuffle",
    saved: Sequence[float] = (),
) -> tuple[float, ...]:
    """Return the weight of each class in the loss, or () if `setting` is empty.

    The setting "balanced" weights classes in proportion to 1 / (samples of the class), as
    scikit-learn does. Any other setting is the path of a file with a line "CLASS WEIGHT" for each
    class. The mean weight of the samples that an epoch shows is 1. With `sampling` "balanced", an
    epoch shows all classes equally often. `saved` are the weights of a checkpoint. They are
    returned if only the scale differs, which older versions computed without `sampling`.
    """
    if not setting:
        return ()
    counts = np.bincount(labels, minlength=len(classes))
    shown = counts
    if setting == BALANCED:
        weights = np.where(counts > 0, len(labels) / (len(classes) * np.maximum(counts, 1)), 0.0)
    else:
        weights = _read_weights(Path(setting), classes)
        shown = np.minimum(counts, 1) if sampling == BALANCED else counts
    weights = weights * shown.sum() / (weights * shown).sum()
    if len(saved) == len(weights):
        shares = weights / weights.sum(), np.divide(saved, sum(saved))
        if np.allclose(*shares, rtol=1e-9, atol=0):
            return tuple(saved)
    return tuple(weights.tolist())


def class_balance(
    sampling: str, weights: Sequence[float], classes: int, labels: np.ndarray
) -> list[dict[str, float]]:
    """Return each class's image count, loss weight and uses of an image per epoch.

    Returns [] without class weights and balanced sampling.
    """
    if not weights and sampling != BALANCED:
        return []
    counts = np.bincount(labels, minlength=classes).tolist()
    share = len(labels) / max(1, np.count_nonzero(counts))
    return [
        {
            "training_images": count,
            "loss_weight": weights[label] if weights else 1.0,
            "times_seen": (share / count if count else 0.0) if sampling == BALANCED else 1.0,
        }
        for label, count in enumerate(counts)
    ]


def describe_balance(rows: Sequence[Mapping[str, float]], classes: Sequence[str]) -> str:
    """Describe the rows of `class_balance` in one line of text."""
    texts = [
        f"{name} {row['training_images']:,} of weight {row['loss_weight']:.3g}, seen "
        f"{row['times_seen']:.3g} times"
        for name, row in zip(classes, rows, strict=True)
    ]
    return f"images      {first_few(texts, 10, '; ')}"


def balanced_order(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Draw the order of an epoch, int32 [N], in which all classes in `labels`, int [N], are equally
    frequent.

    Each of K classes gets about N / K places. Samples of one class occur equally often, up to a
    difference of 1.
    """
    counts = np.unique(labels, return_counts=True)[1]
    by_class = np.split(np.argsort(labels, kind="stable").astype(np.int32), np.cumsum(counts)[:-1])
    chosen = []
    for number, index in enumerate(rng.permutation(len(counts))):
        samples = by_class[index]
        places = (len(labels) + number) // len(counts)
        rounds = [rng.permutation(samples) for _ in range(-(-places // len(samples)))]
        chosen.append(np.concatenate(rounds)[:places])
    return rng.permutation(np.concatenate(chosen))


def _read_weights(path: Path, classes: Sequence[str]) -> np.ndarray:
    fix = "give 'balanced' or the path of a text file"
    find = number_classes(classes)
    weights: dict[int, tuple[float, int]] = {}  # and the first line of each class
    for line, name, value, _ in read_table("class_weights", path, (CLASS, _WEIGHT), fix):
        number = find(name)
        if number is None:
            reason = fault_of_cell(name) or suggest_name(name, classes)
            raise ValueError(
                f"{path} line {line}: {name!r} is not a class of the data set; {reason}"
            )
        try:
            weight = float(value)
        except ValueError:
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"{path} line {line}: weight {value!r} must be a number above 0; "
                "write a line CLASS WEIGHT, with a number such as 0.5"
            )
        before, first = weights.setdefault(number, (weight, line))
        if before != weight:
            raise ValueError(
                f"{path} line {line}: {classes[number]!r} has weight {weight:g}, but line {first} "
                f"has {before:g}; keep one line"
            )
    if missing := [name for number, name in enumerate(classes) if number not in weights]:
        raise ValueError(
            f"{path}: has no weight for {first_few(missing)}; "
            "write a line CLASS WEIGHT for each class"
        )
    return np.array([weights[number][0] for number in range(len(classes))])
