"""The pictures that both sides read: twelve awkward ones, or those of the user's folder."""

import dataclasses
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.data.image_file import image_formats

# What makes a picture awkward, and the words for it.
FEATURES = {
    "turned": "an EXIF orientation",
    "palette": "a palette",
    "alpha": "transparency",
    "bits16": "16 bits",
    "cmyk": "CMYK colours",
    "gray": "one channel",
    "animated": "several frames",
    "progressive": "a progressive JPEG",
}
# Features with one reading only: every program decodes such a file to the same pixels.
ONE_READING = ("gray", "progressive")
CLASSES = ("10", "2", "Zebra", "ant")  # sorted by bytes; other orders give other labels

_TURNED = 0x0112  # EXIF's orientation
_MODES = {"P": "palette", "RGBA": "alpha", "LA": "alpha", "PA": "alpha", "CMYK": "cmyk"}
_MOST_HEADERS = 2000  # so many files of a folder are opened to find awkward ones
_ENDINGS = ("jpg", "jpeg", "png", "webp", "tif", "tiff", "gif", "bmp", "ppm", "pgm", "jp2", "avif")


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture file, and what is awkward about it."""

    path: str
    name: str  # relative to the folder
    size: tuple[int, int]  # width and height, in pixels, as stored
    features: frozenset[str]  # keys of FEATURES

    @property
    def is_plain(self) -> bool:
        """Whether every program should decode the same pixels."""
        return not self.features - {*ONE_READING}

    @property
    def words(self) -> str:
        """What is awkward, for example "transparency"; empty for a plain picture."""
        return ", ".join(feature for name, feature in FEATURES.items() if name in self.features)


def describe(path: str, name: str) -> Picture:
    """Open a picture's header with Pillow. A file that Pillow cannot open has no features."""
    from PIL import Image

    try:
        with Image.open(path, formats=image_formats()) as image:
            return Picture(path, name, image.size, frozenset(_features(image)))
    except Exception:  # the sides report what they cannot read
        return Picture(path, name, (0, 0), frozenset())


def _features(image: Any) -> Iterable[str]:
    if image.getexif().get(_TURNED, 1) not in (0, 1):
        yield "turned"
    frames = getattr(image, "n_frames", 1)
    if image.mode in _MODES and frames == 1:  # an animation has a palette anyway
        yield _MODES[image.mode]
    if "transparency" in image.info and frames == 1:
        yield "alpha"
    if image.mode.startswith("I"):
        yield "bits16"
    if image.mode in ("L", "1", "LA"):
        yield "gray"
    if frames > 1:
        yield "animated"
    if image.info.get("progressive"):
        yield "progressive"


def pictures_in(folder: str, most: int) -> tuple[list[Picture], int]:
    """Return up to `most` pictures of a folder, sorted, and how many the folder has.

    The first picture with each feature is among them. The others are spread evenly.
    """
    paths = sorted(
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.rpartition(".")[2].lower() in _ENDINGS
    )

    @functools.cache
    def described(path: str) -> Picture:
        return describe(path, os.path.relpath(path, folder))

    headers = [described(path) for path in paths[:_MOST_HEADERS]]
    chosen: dict[str, Picture] = {}
    for feature in FEATURES:
        first = next((header for header in headers if feature in header.features), None)
        if first is not None:
            chosen[first.path] = first
    others = [path for path in paths if path not in chosen]
    count = min(len(others), max(0, most - len(chosen)))
    for index in np.linspace(0, len(others) - 1, count).round().astype(int):
        path = others[index]
        chosen[path] = described(path)
    return sorted(chosen.values(), key=lambda picture: picture.path), len(paths)


def texture(seed: int, width: int, height: int) -> np.ndarray:
    """Return smooth colours with fine grain, uint8 [height, width, 3]; channels are independent."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 216, (7, 9, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = rng.integers(-24, 25, (height, width, 3))
    return (np.asarray(smooth).astype(np.int64) + grain).clip(0, 255).astype(np.uint8)


def make_pictures(folder: str) -> list[Picture]:
    """Write the twelve awkward pictures, three in the folder of each class, and return them."""
    from PIL import Image

    def colours(seed: int, width: int, height: int) -> Any:
        return Image.fromarray(texture(seed, width, height))

    def save(name: str, image: Any, **options: Any) -> None:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, **options)

    ten, two, zebra, ant = CLASSES
    exif = Image.Exif()
    exif[_TURNED] = 6
    save(f"{ten}/turned.jpg", colours(1, 403, 301), exif=exif, quality=92)
    save(f"{ten}/palette.png", colours(2, 351, 263).quantize(48))
    clear = colours(3, 371, 283)
    veil = np.linspace(0, 255, 371).astype(np.uint8)
    clear.putalpha(Image.fromarray(np.tile(veil, (283, 1))))
    save(f"{ten}/alpha.png", clear)
    save(f"{two}/gray.jpg", colours(4, 333, 271).convert("L"), quality=92)
    fine = np.asarray(colours(5, 339, 257).convert("L")).astype(np.uint16) * 257
    grain = np.random.default_rng(5).integers(0, 200, fine.shape, dtype=np.uint16)
    save(f"{two}/bits16.png", Image.fromarray(np.minimum(fine, 65000) + grain))
    save(f"{two}/cmyk.jpg", colours(6, 347, 269).convert("CMYK"), quality=92)
    save(f"{zebra}/odd.png", colours(7, 470, 359))
    save(f"{zebra}/line.png", colours(8, 40, 1))
    save(f"{zebra}/wide.png", colours(9, 708, 61))
    save(f"{ant}/tiny.png", colours(10, 9, 7))
    save(f"{ant}/progressive.jpg", colours(11, 361, 504), progressive=True, quality=92)
    frames = [colours(seed, 303, 251).quantize(48) for seed in (12, 13)]
    save(f"{ant}/animated.gif", frames[0], save_all=True, append_images=frames[1:])
    return pictures_in(folder, 12)[0]
