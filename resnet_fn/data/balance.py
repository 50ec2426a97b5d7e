"""Unbalanced sets: what each class weighs in the loss, and how often its samples are seen (`order.balanced_order`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.hints import closest, few, near_path

BALANCED = "balanced"


def class_weights(setting: str, classes: Sequence[str], labels: np.ndarray) -> tuple[float, ...]:
    """What a sample of each class weighs in the loss; () where all weigh the same.

    "balanced" is N / (classes · samples of the class), as scikit-learn's. Weights of a file are scaled so that the mean
    over the training samples is 1, which the balanced ones have: the learning rate keeps its meaning.

    Args:
        setting: "", "balanced", or a file with a line "CLASS WEIGHT" for each class.
        labels: int [N], of the training samples.

    Raises:
        ValueError: a file that cannot be read, or does not name every class once with a number above 0.
    """
    if not setting:
        return ()
    counts = np.bincount(labels, minlength=len(classes))
    if setting == BALANCED:
        weights = np.where(counts > 0, len(labels) / (len(classes) * np.maximum(counts, 1)), 0.0)
    else:
        weights = _read_weights(Path(setting), classes)
    return tuple((weights * len(labels) / (weights * counts).sum()).tolist())


def treatment(sampling: str, weights: Sequence[float], classes: int, labels: np.ndarray) -> list[dict[str, float]]:
    """What is done about an unbalanced set, a row for each class; [] where nothing is.

    Args:
        sampling: see `Recipe`.
        weights, labels: see `class_weights`.

    Returns:
        "training_images"; "loss_weight"; "times_seen" in an epoch, each of its images.
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


def describe(rows: Sequence[Mapping[str, float]], classes: Sequence[str]) -> str:
    """A line of what `treatment` found."""
    told = [
        f"{name} {row['training_images']:,} of weight {row['loss_weight']:.3g}, seen {row['times_seen']:.3g} times"
        for name, row in zip(classes, rows, strict=True)
    ]
    return f"images      {few(told, 10, '; ')}"


def _read_weights(path: Path, classes: Sequence[str]) -> np.ndarray:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        hint = near_path(path, "give balanced, or a text file")
        raise ValueError(f"class_weights: {str(path)!r} cannot be read; {hint}") from None
    found: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, _, value = line.strip().rpartition(" ")
        name = name.strip()
        if name not in classes:
            raise ValueError(f"{path}, line {number}: {name!r} is no class of the set; {closest(name, classes)}")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < float("inf"):
            raise ValueError(f"{path}, line {number}: {value!r} is no weight; give CLASS WEIGHT, a number above 0")
    missing = [name for name in classes if name not in found]
    if missing:
        raise ValueError(f"{path}: has no weight of {few(missing)}; give a line CLASS WEIGHT for each class")
    return np.array([found[name] for name in classes])
