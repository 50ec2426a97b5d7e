"""Find which samples of a data set are of which pictures, if their order is unknown."""

from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.inputs.layout import planes_of
from resnet_fn.parity.inputs.pictures import Picture
from resnet_fn.parity.inputs.reading import Sample

_SIZE = 12  # rows and columns of a sample's thumbnail
_SURE = 0.8  # the least correlation of two thumbnails of one picture

Read = Mapping[Picture, Sample | str]


def paired_by_pixels(samples: Read, other: Read) -> dict[Picture, Sample | str] | None:
    """Return the samples by the picture that they show on the other side.

    Returns None if they are in the right order already, or if pixels do not show the order.
    """
    pictures = [
        picture
        for picture, sample in samples.items()
        if isinstance(sample, Sample) and isinstance(other[picture], Sample)
    ]
    thumbnails = [_thumbnail(samples[picture]) for picture in pictures]
    other_thumbnails = [_thumbnail(other[picture]) for picture in pictures]
    if len(pictures) < 3 or any(
        thumbnail is None for thumbnail in (*thumbnails, *other_thumbnails)
    ):
        return None
    alike = np.stack(thumbnails) @ np.stack(other_thumbnails).T  # type: ignore[arg-type]
    nearest = alike.argmax(0)
    best = alike.max(0)
    in_order = np.diag(alike) >= best - 0.05
    if in_order.mean() > 0.5 or (best < _SURE).mean() > 0.3 or len({*nearest}) < len(nearest):
        return None
    moved = {
        picture: samples[pictures[int(index)]]
        for picture, index in zip(
            pictures,
            nearest,
            strict=True,
        )
    }
    return {**samples, **moved}


def _thumbnail(sample: Sample | str) -> np.ndarray | None:
    """Return a small gray picture of norm 1 and mean 0, or None if the sample is no picture."""
    planes = None if isinstance(sample, str) else planes_of(sample.image)
    if planes is None or min(planes.size) < _SIZE:
        return None
    gray = planes.pixels.mean(2)
    height, width = gray.shape
    rows = np.linspace(0, height, _SIZE, endpoint=False).astype(int)
    columns = np.linspace(0, width, _SIZE, endpoint=False).astype(int)
    sums = np.add.reduceat(gray, rows, axis=0)
    small = np.add.reduceat(sums, columns, axis=1)
    small = small.ravel() - small.mean()
    norm = float(np.linalg.norm(small))
    return small / norm if norm else None
