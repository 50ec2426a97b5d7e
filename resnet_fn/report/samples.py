"""What a report shows of a sample: its name and its picture."""

import numpy as np

from resnet_fn.data.sources import DataSet, Split


def sample_name(split: Split, index: int) -> str:
    """The sample's file name, or its number in a data set that has no files."""
    names = getattr(split, "names", ())
    return str(names[index]) if len(names) else f"test-{index:05d}"


def sample_picture(dataset: DataSet, split: Split, index: int) -> np.ndarray:
    """The stored image as grey or RGB, float32 [H, W] or [H, W, 3] in 0..1."""
    picture = np.asarray(split.images[index], np.float32) / dataset.full_scale
    return picture[..., 0] if picture.shape[-1] == 1 else picture
