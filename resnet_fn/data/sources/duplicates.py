"""This module finds image files with the same contents, by the fingerprints of the first check."""

import numpy as np

from resnet_fn.config.wording import counted
from resnet_fn.data.sources.files import FileSplit


def describe_duplicates(train: FileSplit | None, validation: FileSplit | None) -> list[str]:
    """Return warnings about images that both train and validate, and about images of two classes.

    `train` and `validation` are checked files, or None. Only files with fingerprints are compared.
    """
    halves = [half for half in (train, validation) if half and len(half.fingerprints)]
    if not halves:
        return []
    labels = np.concatenate([half.labels for half in halves])
    prints = np.concatenate([half.fingerprints for half in halves])
    _, first, inverse = np.unique(
        prints,
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    first_copy = first[inverse.reshape(-1)]  # for each file, the first file with the same contents
    training = len(halves[0]) if halves[0] is train else 0

    def path(index: int) -> str:
        if index < len(halves[0]):
            return halves[0].path(index)
        return halves[1].path(index - len(halves[0]))

    def example(index: int) -> str:
        return f"{path(index)} and {path(first_copy[index])}"

    notes = []
    both = training + np.flatnonzero(first_copy[training:] < training)
    if training and len(both):
        validating = len(labels) - training
        count = f"{len(both)} of {validating} validation images are identical to training images"
        notes.append(
            f"warning: {count}, such as {example(both[0])}, so the evaluation is too good; "
            "keep one copy of each"
        )
    differs = labels != labels[first_copy]
    if labels.ndim == 2:
        differs = differs.any(1)
    other_class = np.flatnonzero(differs)
    if len(other_class):
        images = len(np.unique(first_copy[other_class]))
        count = f"{counted(images, 'image has', 'images have')} identical copies of another class"
        notes.append(
            f"warning: {count}, such as {example(other_class[0])}; keep each in its right class"
        )
    return notes
