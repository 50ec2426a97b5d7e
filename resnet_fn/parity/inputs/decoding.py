"""The ways to decode a picture file: with or without its orientation, on black or on white, …"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from resnet_fn.parity.inputs.pictures import Picture

# The ways to read each feature, likely ones first. A key of `_DECODERS`.
READINGS: dict[str, tuple[str, ...]] = {
    "turned": ("orientation ignored", "upright"),
    "palette": ("the palette's colours", "the palette's indices"),
    "alpha": ("alpha dropped", "alpha on black", "alpha on white", "alpha on gray"),
    "bits16": ("16 bits scaled", "16 bits cut at 255", "the low byte of 16 bits"),
    "cmyk": ("CMYK converted", "CMYK inverted", "CMYK's first three channels"),
    "animated": ("the first frame", "the last frame"),
}
PLAIN = "as Pillow decodes it"


def readings_of(picture: Picture) -> tuple[str, ...]:
    """Return the ways to decode a picture. One that is not awkward has one."""
    names = [reading for feature in READINGS for reading in _of(picture, feature)]
    return tuple(names) or (PLAIN,)


def _of(picture: Picture, feature: str) -> tuple[str, ...]:
    return READINGS[feature] if feature in picture.features else ()


def feature_of(reading: str) -> str:
    """Return the feature that a reading is of, or "" for a plain picture."""
    return next((name for name, readings in READINGS.items() if reading in readings), "")


@functools.lru_cache(maxsize=128)
def decode(picture: Picture, reading: str) -> np.ndarray:
    """Decode a picture in one of the ways of `readings_of`: levels, float32 [H, W, 3]."""
    from PIL import Image

    with Image.open(picture.path) as image:
        decoded = _DECODERS.get(reading, _colours)(image)
        pixels = np.asarray(decoded, np.float32)
    return np.repeat(pixels[..., None], 3, 2) if pixels.ndim == 2 else pixels[..., :3]


def _colours(image: Any) -> Any:
    return image if image.mode == "L" else image.convert("RGB")


def _upright(image: Any) -> Any:
    from PIL import ImageOps

    return _colours(ImageOps.exif_transpose(image))


def _on(level: int) -> Callable[[Any], Any]:
    def blend(image: Any) -> Any:
        from PIL import Image

        clear = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, (level, level, level, 255))
        return Image.alpha_composite(ground, clear).convert("RGB")

    return blend


def _last_frame(image: Any) -> Any:
    image.seek(image.n_frames - 1)
    return _colours(image)


def _wide(image: Any) -> np.ndarray:
    return np.asarray(image).astype(np.int64)


def _first_channels(image: Any) -> np.ndarray:
    return np.asarray(image)[..., :3]


def _inverted(image: Any) -> Any:
    from PIL import ImageChops

    return ImageChops.invert(image).convert("RGB")


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "upright": _upright,
    "the palette's indices": np.asarray,
    "alpha on black": _on(0),
    "alpha on white": _on(255),
    "alpha on gray": _on(128),
    "16 bits scaled": lambda image: _wide(image) / 257,
    "16 bits cut at 255": lambda image: _wide(image).clip(0, 255),
    "the low byte of 16 bits": lambda image: _wide(image) & 255,
    "CMYK inverted": _inverted,
    "CMYK's first three channels": _first_channels,
    "the last frame": _last_frame,
}

LATE = " after the resize"  # ends the name of a curve that is applied to resized levels

# Curves of levels 0..255 that a side may apply to a decoded picture.
CURVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gamma 2.2": lambda x: 255 * (x / 255) ** 2.2,
    "gamma 1/2.2": lambda x: 255 * (x / 255) ** (1 / 2.2),
    "sRGB to linear": lambda x: 255 * _to_linear(x / 255),
    "linear to sRGB": lambda x: 255 * _to_srgb(x / 255),
}


def _to_linear(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def _to_srgb(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)
