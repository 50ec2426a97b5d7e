"""What a report shows of a sample: its name and its picture."""

import io

import numpy as np

from resnet_fn.data.dataset import DataSet

_PNG_UP_TO = 64  # pixels; a PNG of a photograph has five times the bytes of a JPEG


def sample_name(dataset: DataSet, index: int) -> str:
    """The test sample's file name, or its number in a data set that has no files."""
    names = getattr(dataset.test, "names", ())
    return printable(names[index]) if names else f"test-{index:05d}"


def printable(name: str) -> str:
    """A file's or folder's name as text: bytes that are not UTF-8 become "\\xff" (Python holds them as surrogates)."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def sample_pictures(dataset: DataSet, indices: list[int]) -> list[bytes]:
    """Test images as evaluation sees them, before normalisation: small ones as PNG, photographs as JPEG."""
    from PIL import Image

    mean, std = (values[:, None, None] for values in dataset.input.moments)
    pictures = []
    for images in dataset.test.eval_images([np.array([index]) for index in indices], dataset.input):
        pixels = (np.clip(images[0] * std + mean, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
        image, file = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels), io.BytesIO()
        image.save(file, "PNG" if image.width <= _PNG_UP_TO else "JPEG", quality=90)
        pictures.append(file.getvalue())
    return pictures
