"""This module draws the first batch as one picture for TensorBoard, with PIL, which MindSpore brings.

TensorBoard shows pictures 350 pixels wide. This one is twice as wide, and its letters are legible if only every
second pixel is shown.
"""

import textwrap
import unicodedata
from collections.abc import Sequence

import numpy as np

_COLUMNS, _ROWS = 5, 2
_CELL, _GAP = 140, 6  # pixels
_TEXT, _LINE = 21, 26  # pixels
_WHITE = 2.5  # standard deviations from the mean to white; as many below it are black


def draw_batch(images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Draw the first images of a batch with their labels, exactly as the net gets them; return uint8 [height, 700, 3].

    The grey scale is fixed: 0 is mid-grey, and ±2.5 are white and black. So a wrong normalisation shows: the picture
    is pale, dark, flat, or all black and white. `images` are float32 [N, C, H, W] of 1 or 3 channels; `labels` are hard
    [N] or soft [N, classes].
    """
    from PIL import Image, ImageDraw, ImageFont

    shown = np.clip((images[: _COLUMNS * _ROWS] / _WHITE + 1) / 2, 0, 1).transpose(0, 2, 3, 1)
    pixels = np.broadcast_to((shown * 255).round().astype(np.uint8), (*shown.shape[:3], 3))
    side, top = _CELL - _GAP, 2 * _LINE + _GAP
    resample = Image.Resampling.BOX if pixels.shape[1] > side else Image.Resampling.NEAREST
    height = _CELL + labels.ndim * _LINE  # a soft label has two lines
    try:
        font = ImageFont.load_default(_TEXT)
    except TypeError:  # before Pillow 10.1 it has one size, 11
        font = ImageFont.load_default()
    texts = label_texts(labels, [ascii_name(name, index) for index, name in enumerate(classes)])
    sheet = Image.new("RGB", (_COLUMNS * _CELL, top + -(-len(pixels) // _COLUMNS) * height), "white")
    ImageDraw.Draw(sheet).text((4, 2), input_title(images), "black", font, spacing=3)
    for index, (picture, text) in enumerate(zip(pixels, texts, strict=False)):
        cell = Image.new("RGB", (side, height), "white")  # it cuts off what is too long of a name
        cell.paste(Image.fromarray(picture).resize((side, side), resample))
        ImageDraw.Draw(cell).text((0, side + 1), text, "black", font, spacing=3)
        row, column = divmod(index, _COLUMNS)
        sheet.paste(cell, (_GAP // 2 + column * _CELL, top + row * height))
    return np.asarray(sheet)


def input_title(images: np.ndarray) -> str:
    """Return mean and standard deviation of each channel as text: near 0 and 1 where the normalisation is right."""
    channels = ", ".join(f"{images[:, c].mean():.2f} ± {images[:, c].std():.2f}" for c in range(images.shape[1]))
    return f"network input; grey is 0, white +2.5, black -2.5\nmean ± std by channel: {channels}"


def label_texts(labels: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Return captions: all names for hard labels [N] or [N, classes], in two lines; the two largest for soft labels."""
    if labels.ndim == 1:
        return [classes[label] for label in labels]
    if np.isin(labels, (0, 1)).all():  # twelve letters fit as a rule, and "..." stands for the rest
        names = (", ".join(classes[place] for place in np.flatnonzero(row)) or "no class" for row in labels)
        return ["\n".join(textwrap.wrap(n, 12, max_lines=2, placeholder=" ...", break_long_words=False)) for n in names]
    texts = []
    for row in labels:
        first, second = np.argsort(-row, kind="stable")[:2]
        other = f"\n{row[second]:.0%} {classes[second]}" if row[second] > 0.5 / len(row) else ""
        texts.append(f"{row[first]:.0%} {classes[first]}{other}")
    return texts


def ascii_name(name: str, index: int) -> str:
    """Return a class's name in the letters that PIL's own font has; "class 4" where none of it is left."""
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return letters if letters.strip() else f"class {index}"
