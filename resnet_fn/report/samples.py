"""What a report shows of a sample: its name and its picture."""

import numpy as np

from resnet_fn.data.dataset import DataSet


def sample_name(dataset: DataSet, index: int) -> str:
    """The test sample's file name, or its number in a data set that has no files."""
    names = getattr(dataset.test, "names", ())
    return printable(names[index]) if names else f"test-{index:05d}"


def printable(name: str) -> str:
    """A file's or folder's name as text: bytes that are not UTF-8 become "\\xff" (Python holds them as surrogates)."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def sample_pictures(dataset: DataSet, indices: list[int]) -> list[np.ndarray]:
    """Test images as evaluation sees them, before normalisation: float32 [H, W] or [H, W, 3] in 0..1."""
    mean, std = (values[:, None, None] for values in dataset.input.moments)
    pictures = []
    for images in dataset.test.eval_images([np.array([index]) for index in indices], dataset.input):
        picture = np.clip(images[0] * std + mean, 0, 1).transpose(1, 2, 0)
        pictures.append(picture[..., 0] if picture.shape[-1] == 1 else picture)
    return pictures
