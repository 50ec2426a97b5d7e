"""Explain a factor between two numbers by the sizes of arrays."""

import math
from collections.abc import Iterable, Sequence

Shape = Sequence[int]

_NEAR = 1e-4  # a factor that is so near to a whole number, or to 1 / a whole number, is this number

_LARGEST = 1e7  # a float32 factor above it is no known whole number


def rounded(factor: float) -> float:
    """Return the whole number, or 1 / the whole number, that a factor is, or else the factor."""
    if not 1 / _LARGEST < abs(factor) < _LARGEST:
        return factor
    for value, back in ((factor, 1.0), (1 / factor, -1.0)):
        if abs(value) > 0.9 and math.isclose(value, round(value), rel_tol=_NEAR):
            return float(round(value) ** back)
    return factor


def words_of_factor(factor: float, shapes: Iterable[Shape]) -> str:
    """Return a factor as text, with the sizes whose product it is, as in "768 = 3·16·16".

    For 1 / a product, the text is "1/768 (768 = 3·16·16)".
    """
    factor = rounded(factor)
    shapes = [*shapes]
    if sizes := sizes_of(factor, shapes):
        return f"{factor:.6g} = {sizes}"
    if sizes := sizes_of(1 / factor if factor else 0.0, shapes):
        return f"1/{1 / factor:.6g} ({1 / factor:.6g} = {sizes})"
    return f"{factor:.6g}"


def sizes_of(number: float, shapes: Iterable[Shape]) -> str:
    """Return two or more neighbouring sizes of a shape whose product is `number`, as in "3·16·16",
    or an empty string. Whole shapes come first, then shapes without the first axes.
    """
    if number < 2 or number != round(number):
        return ""
    parts = []
    for shape in shapes:
        count = len(shape)
        spans = [(first, last) for first in range(count) for last in range(first + 1, count + 1)]
        parts += [(first, count - last, tuple(shape[first:last])) for first, last in spans]
    for _, _, sizes in sorted(parts, key=lambda part: (part[1], part[0], -len(part[2]))):
        if math.prod(sizes) == number:
            return "·".join(str(size) for size in sizes if size != 1) if number not in sizes else ""
    return ""
