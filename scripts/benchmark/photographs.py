"""Generated photographs, as files and as an image folder."""

from pathlib import Path

import numpy as np


def photograph(seed: int, width: int = 500, height: int = 375) -> np.ndarray:
    """Draw shapes, edges and grain, as a JPEG of quality 90 about 55 kB, as ImageNet's: uint8
    [height, width, 3].
    """
    from PIL import Image

    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((4, 90), (12, 60), (40, 35), (120, 18)):
        noise = rng.normal(size=(cells * 3 // 4 + 1, cells + 1, 3)).astype(np.float32)
        noise = (noise - noise.min()) / (noise.max() - noise.min()) * 255
        layer = Image.fromarray(noise.astype(np.uint8)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        picture += np.asarray(layer, np.float32) * (strength / 255)
    picture += rng.normal(size=(height, width, 1)) * 6
    return picture.clip(0, 255).astype(np.uint8)


def write_folder(root: Path, images: int, classes: int = 4) -> None:
    """Write `images` training photographs in class folders, and a few for validation."""
    from PIL import Image

    for half, count in (("train", images), ("val", classes)):
        for number in range(count):
            folder = root / half / f"class {number % classes}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = photograph(number + (10**6 if half == "val" else 0))
            Image.fromarray(picture).save(folder / f"{number:06d}.JPEG", quality=90)
