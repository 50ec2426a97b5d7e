"""Small pictures for TensorBoard: a batch as the net sees it, a confusion matrix. Drawn with PIL, MindSpore's own.

TensorBoard shows a picture 350 pixels wide in its tab Images, and at most 208 high in a card of Time Series, both
without smoothing. So pictures are twice that: every second pixel is shown, which letters of this size survive, and at
their actual size they are large.
"""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.evaluation.metrics import confused_pairs

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

_WIDTH, _HEIGHT = 700, 412
_TEXT, _SMALL = 21, 16  # pixels
_LINE = 26
_SHOWN = 2.5  # standard deviations from the mean to black and to white
_COLUMNS = 5  # of a batch
_MATRIX, _NAMED_MATRIX = 404, 360  # pixels
_MOST_CELLS = _MATRIX // 2  # every second pixel is shown
_COUNTS_UP_TO, _NAMES_UP_TO = 13, 16  # classes


def batch_grid(images: np.ndarray, captions: Sequence[str], title: str, most: int = 2 * _COLUMNS) -> np.ndarray:
    """Draw the first images of a batch with their labels, exactly as the net gets them.

    The grey scale is fixed: 0 is mid-grey, ±2.5 white and black. So a wrong normalisation is seen: a batch that is
    not centred is pale or dark, one that is scaled wrongly is flat or all black and white.

    Args:
        images: float32 [N, C, H, W], normalised; C is 1 or 3.
        captions: one for each image, of one or two lines.
        title: the lines above them.

    Returns:
        uint8 [height, width, 3].
    """
    from PIL import Image

    shown = np.clip((images[:most] / _SHOWN + 1) / 2, 0, 1)
    pixels = np.repeat(shown, 3, 1) if shown.shape[1] == 1 else shown
    pixels = (pixels.transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    cell = _WIDTH // _COLUMNS
    side = cell - 6
    resample = Image.Resampling.BOX if pixels.shape[1] > side else Image.Resampling.NEAREST
    lines = 1 + max(caption.count("\n") for caption in captions[:most])
    height = side + 8 + lines * _LINE
    top = _LINE * (title.count("\n") + 1) + 6
    sheet = Image.new("RGB", (_WIDTH, -(-len(pixels) // _COLUMNS) * height + top), "white")
    draw = _draw(sheet)
    _write(draw, (4, 2), title)
    for index, picture in enumerate(pixels):
        x, y = 3 + index % _COLUMNS * cell, top + index // _COLUMNS * height
        sheet.paste(Image.fromarray(picture).resize((side, side), resample), (x, y))
        text = "\n".join(_fit(_plain(line, index), side) for line in captions[index].split("\n"))
        _write(draw, (x, y + side + 1), text)
    return np.asarray(sheet)


def input_title(images: np.ndarray) -> str:
    """Mean and standard deviation of each channel: near 0 and 1 where the normalisation is right."""
    channels = ", ".join(f"{images[:, c].mean():.2f} ± {images[:, c].std():.2f}" for c in range(images.shape[1]))
    return f"network input; grey is 0, white +2.5, black -2.5\nmean ± std by channel: {channels}"


def label_texts(labels: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Captions of hard labels [N], or of soft ones [N, classes]: their two largest parts, a line each."""
    if labels.ndim == 1:
        return [classes[label] for label in labels]
    texts = []
    for row in labels:
        first, second = np.argsort(-row, kind="stable")[:2]
        other = f"\n{row[second]:.0%} {classes[second]}" if row[second] > 0.5 / len(row) else ""
        texts.append(f"{row[first]:.0%} {classes[first]}{other}")
    return texts


def confusion_picture(confusion: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Draw a confusion matrix, rows true, columns predicted; beside it what is most often confused, by name.

    The more of its true class a cell holds, the bluer it is (by the root of the share, so that few are seen too). Up
    to 16 classes are named, up to 13 have numbers: counts, or percent where a count has more than three digits. More
    classes than pixels are taken together.

    Args:
        confusion: int [C, C].

    Returns:
        uint8 [height, width, 3], of one size for any number of classes.
    """
    from PIL import Image

    count = len(classes)
    named = count <= _NAMES_UP_TO
    classes = [_plain(name, index) for index, name in enumerate(classes)]
    rows = _row_names(classes)
    margin = min(136, 12 + max(map(_width, rows))) if named else 8
    top = _LINE if named else 4
    together = -(-count // _MOST_CELLS)
    cells = _sum_blocks(confusion, together)
    shares = cells / np.maximum(cells.sum(1, keepdims=True), 1)
    white, blue = np.array([255, 255, 255]), np.array([8, 48, 107])
    colors = (white + (blue - white) * np.sqrt(shares)[..., None]).round().astype(np.uint8)
    side = (_NAMED_MATRIX if named else _MATRIX) // len(cells)
    matrix = Image.fromarray(colors).resize((len(cells) * side,) * 2, Image.Resampling.NEAREST)
    sheet = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    sheet.paste(matrix, (margin, top))
    draw = _draw(sheet)
    draw.rectangle((margin - 2, top - 2, margin + matrix.width + 1, top + matrix.height + 1), outline="grey", width=2)
    if named:
        for index, name in enumerate(rows):
            middle = index * side + side // 2
            _write(draw, (margin - 6, top + middle), _fit(name, margin - 8), anchor="rm")
            column = name if name == classes[index] else str(index)
            _write(draw, (margin + middle, top - 3), column, anchor="mb", size=_TEXT if side >= 26 else _SMALL)
    if count <= _COUNTS_UP_TO:
        _write_numbers(draw, confusion, shares, (margin, top), side)
    left = margin + matrix.width + 10
    _write_beside(draw, confusion, classes, together, left)
    return np.asarray(sheet)


def _row_names(classes: Sequence[str]) -> list[str]:
    # Columns are too narrow for names: they are numbered, and so are the rows then.
    if max(map(len, classes)) <= 2:
        return list(classes)
    return [f"{index} {name}" for index, name in enumerate(classes)]


def _plain(name: str, index: int) -> str:
    # PIL's own font has ASCII only. A name that none of it is left of is called by its number.
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return letters if letters.strip() else f"class {index}"


def _sum_blocks(confusion: np.ndarray, together: int) -> np.ndarray:
    """Sum blocks of `together` x `together` cells; the last ones may hold fewer."""
    if together == 1:
        return confusion
    starts = np.arange(0, len(confusion), together)
    return np.add.reduceat(np.add.reduceat(confusion, starts, 0), starts, 1)


def _write_numbers(
    draw: "ImageDraw", confusion: np.ndarray, shares: np.ndarray, place: tuple[int, int], side: int
) -> None:
    percent = confusion.max() > 999
    for (row, column), value in np.ndenumerate(confusion):
        text = f"{shares[row, column] * 100:.0f}" if percent else str(value)
        if value and text != "0":
            center = (place[0] + column * side + side // 2, place[1] + row * side + side // 2)
            size = _TEXT if len(text) < 3 or side >= 44 else _SMALL
            _write(draw, center, text, "white" if shares[row, column] > 0.25 else "black", "mm", size)


def _write_beside(draw: "ImageDraw", confusion: np.ndarray, classes: Sequence[str], together: int, left: int) -> None:
    total = int(confusion.sum())
    width = _WIDTH - left - 8
    lines = [
        f"top-1 {np.trace(confusion) / max(total, 1):.2%}",
        "rows true",
        "columns predicted",
        *(["% of the row"] if len(classes) <= _COUNTS_UP_TO and confusion.max() > 999 else []),
        *([f"a cell: {together} classes"] if together > 1 else []),
        "",
    ]
    pairs = confused_pairs(confusion, _HEIGHT // _LINE - len(lines) - 1)
    if pairs:
        lines.append("most confused:")
    for place, text in enumerate(lines):
        _write(draw, (left, place * _LINE), _fit(text, width))
    right = left + width
    for place, (label, prediction, number) in enumerate(pairs, len(lines)):
        counted = str(number)
        room = width - _width(counted) - _width(" > ") - 12
        _write(draw, (right, place * _LINE), counted, anchor="ra")
        first = _fit(classes[label], max(room // 2, room - _width(classes[prediction])))
        second = _fit(classes[prediction], room - _width(first))
        _write(draw, (left, place * _LINE), f"{first} > {second}")


def _draw(sheet: Any) -> "ImageDraw":
    from PIL import ImageDraw

    return ImageDraw.Draw(sheet)


def _font(size: int = _TEXT) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _width(text: str) -> int:
    return int(_font().getlength(text)) + 1


def _fit(text: str, width: int) -> str:
    """The text, or as much of its beginning and its last letters (a number, often) as fit into `width` pixels."""
    if _width(text) <= width:
        return text
    start, end = text[:-2], "..." + text[-2:]
    while start and _width(start + end) > width:
        start = start[:-1]
    return start + end


def _write(
    draw: "ImageDraw",
    place: tuple[int, int],
    text: str,
    color: str = "black",
    anchor: str | None = None,
    size: int = _TEXT,
) -> None:
    draw.text(place, text, fill=color, anchor=anchor, spacing=_LINE - _TEXT - 2, font=_font(size))
