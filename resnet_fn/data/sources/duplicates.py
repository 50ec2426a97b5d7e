"""This module finds image files with the same contents, by the fingerprints of the first check."""

import numpy as np

from resnet_fn.config.wording import counted
from resnet_fn.data.sources.files import FileSplit


def describe_duplicates(train: FileSplit | None, validation: FileSplit | None) -> list[str]:
    """Return warnings about images that both train and validate, and about images of two classes.

    `train` and `validation` are checked files, or None. Only files with fingerprints are compared.
    """
    first_copies: dict[bytes, tuple[FileSplit, int]] = {}
    on_both_sides = []
    of_two_classes: dict[bytes, str] = {}
    for half in filter(None, (train, validation)):
        for index, value in enumerate(half.fingerprints):
            contents = value.tobytes()
            other, first = first_copies.setdefault(contents, (half, index))
            if other is half and first == index:
                continue
            pair = f"{half.path(index)} and {other.path(first)}"
            if other is not half:
                on_both_sides.append(pair)
            if np.any(half.labels[index] != other.labels[first]):
                of_two_classes.setdefault(contents, pair)
    notes = []
    if validation and on_both_sides:
        notes.append(
            f"warning: {len(on_both_sides)} of {len(validation)} validation images are identical "
            f"to training images, such as {on_both_sides[0]}, so the evaluation is too good; "
            "keep one copy of each"
        )
    if of_two_classes:
        images = counted(len(of_two_classes), "image has", "images have")
        notes.append(
            f"warning: {images} identical copies of another class, such as "
            f"{next(iter(of_two_classes.values()))}; keep each in its right class"
        )
    return notes
