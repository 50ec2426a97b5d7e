"""Small pictures for TensorBoard: a batch as the net sees it, a confusion matrix. Drawn with PIL, MindSpore's own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

_TEXT = 14  # pixels
_LINE = 20
_SHOWN = 2.5  # standard deviations from the mean to black and to white


def batch_grid(images: np.ndarray, captions: Sequence[str], title: str, most: int = 16) -> np.ndarray:
    """Draw the first images of a batch with their labels, exactly as the net gets them.

    The grey scale is fixed: 0 is mid-grey, ±2.5 white and black. So a wrong normalisation is seen: a batch that is
    not centred is pale or dark, one that is scaled wrongly is flat or all black and white.

    Args:
        images: float32 [N, C, H, W], normalised; C is 1 or 3.
        captions: one for each image.
        title: the lines above them.

    Returns:
        uint8 [height, width, 3].
    """
    from PIL import Image

    shown = np.clip((images[:most] / _SHOWN + 1) / 2, 0, 1)
    pixels = np.repeat(shown, 3, 1) if shown.shape[1] == 1 else shown
    pixels = (pixels.transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    side = max(104, pixels.shape[1])
    columns = min(4, len(pixels))
    rows = -(-len(pixels) // columns)
    cell, height = side + 6, side + 6 + _LINE
    top = _LINE * (title.count("\n") + 1) + 4
    sheet = Image.new("RGB", (columns * cell + 6, rows * height + top), "white")
    draw = _draw(sheet)
    _write(draw, (6, 2), title)
    for index, picture in enumerate(pixels):
        x, y = 6 + index % columns * cell, top + index // columns * height
        sheet.paste(Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST), (x, y))
        _write(draw, (x, y + side + 1), captions[index][: side // 7])
    return np.asarray(sheet)


def input_title(images: np.ndarray) -> str:
    """Mean and standard deviation of each channel: near 0 and 1 where the normalisation is right."""
    channels = ", ".join(f"{images[:, c].mean():+.2f} ± {images[:, c].std():.2f}" for c in range(images.shape[1]))
    return f"network input, mean ± std by channel:\n{channels}\n(mid-grey is 0, white is +2.5)"


def label_texts(labels: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Captions of hard labels [N], or of soft ones [N, classes] (their two largest parts)."""
    if labels.ndim == 1:
        return [classes[label] for label in labels]
    texts = []
    for row in labels:
        first, second = np.argsort(-row, kind="stable")[:2]
        other = f" {row[second]:.0%} {classes[second]}" if row[second] > 0.5 / len(row) else ""
        texts.append(f"{row[first]:.0%} {classes[first]}{other}")
    return texts


def confusion_picture(confusion: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Draw a confusion matrix: rows true, columns predicted, blue by the share of the true class.

    Up to 40 classes have names, up to 20 counts; more have one pixel or more for each cell.

    Args:
        confusion: int [C, C].

    Returns:
        uint8 [height, width, 3].
    """
    from PIL import Image

    count = len(classes)
    named = count <= 40
    side = 40 if count <= 20 else 22 if named else max(1, 800 // count)
    margin = 24 + 8 * min(12, max(map(len, classes))) if named else _LINE + 4
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    white, blue = np.array([255, 255, 255]), np.array([8, 48, 107])
    colors = (white + (blue - white) * shares[..., None]).round().astype(np.uint8)
    cells = Image.fromarray(colors).resize((count * side, count * side), Image.Resampling.NEAREST)
    sheet = Image.new("RGB", (margin + count * side + 8, margin + count * side + _LINE + 8), "white")
    sheet.paste(cells, (margin, margin))
    draw = _draw(sheet)
    draw.rectangle((margin - 1, margin - 1, margin + count * side, margin + count * side), outline="grey")
    _write(draw, (margin, margin + count * side + 3), "rows: true class; columns: predicted")
    if named:
        for index, name in enumerate(classes):
            middle = margin + index * side + side // 2
            _write(draw, (margin - 6, middle), name[:12], anchor="rm")
            if len(name) <= side // 9:
                _write(draw, (middle, margin - 6), name, anchor="mb")
            else:
                _write_upwards(sheet, (middle, margin - 6), name[:12])
    if count <= 20:
        for (row, column), value in np.ndenumerate(confusion):
            if value:
                center = (margin + column * side + side // 2, margin + row * side + side // 2)
                _write(draw, center, str(value), "white" if shares[row, column] > 0.5 else "black", "mm")
    return np.asarray(sheet)


def _draw(sheet: Any) -> "ImageDraw":
    from PIL import ImageDraw

    return ImageDraw.Draw(sheet)


def _write(
    draw: "ImageDraw", place: tuple[int, int], text: str, color: str = "black", anchor: str | None = None
) -> None:
    from PIL import ImageFont

    draw.text(place, text, fill=color, anchor=anchor, spacing=_LINE - _TEXT - 2, font=ImageFont.load_default(_TEXT))


def _write_upwards(sheet: Any, place: tuple[int, int], text: str) -> None:
    # Column names run upwards from the matrix: long ones would run into each other.
    from PIL import Image

    strip = Image.new("RGB", (8 * len(text) + 16, _LINE), "white")
    _write(_draw(strip), (2, _LINE // 2), text, anchor="lm")
    turned = strip.rotate(90, expand=True)
    sheet.paste(turned, (place[0] - _LINE // 2, place[1] - turned.height))
