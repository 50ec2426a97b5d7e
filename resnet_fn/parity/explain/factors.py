"""Explain a factor between two numbers by the sizes of arrays."""

import itertools
import math
from collections.abc import Iterable, Sequence

Shape = Sequence[int]

_NEAR = 1e-4  # a factor that is so near to a whole number, or to 1 / a whole number, is this number

_LARGEST = 1e7  # a float32 factor above it is no known whole number


def rounded(factor: float) -> float:
    """Return the whole number, or 1 / the whole number, that a factor is, or else the factor."""
    if not 1 / _LARGEST < abs(factor) < _LARGEST:
        return factor
    inverse = 1 / factor
    if _is_whole(factor):
        return float(round(factor))
    if _is_whole(inverse):
        return 1.0 / round(inverse)
    return factor


def _is_whole(number: float) -> bool:
    return abs(number) > 0.9 and math.isclose(number, round(number), rel_tol=_NEAR)


def words_of_factor(factor: float, shapes: Iterable[Shape]) -> str:
    """Return a factor as text, with the sizes whose product it is, as in "768 = 3·16·16".

    For 1 / a product, the text is "1/768 (768 = 3·16·16)".
    """
    factor = rounded(factor)
    shapes = [*shapes]
    if sizes := sizes_of(factor, shapes):
        return f"{factor:.6g} = {sizes}"
    whole = 1 / factor if factor else 0.0
    if sizes := sizes_of(whole, shapes):
        return f"1/{whole:.6g} ({whole:.6g} = {sizes})"
    return f"{factor:.6g}"


def sizes_of(number: float, shapes: Iterable[Shape]) -> str:
    """Return two or more neighbouring sizes of a shape whose product is `number`, as in "3·16·16",
    or an empty string. Whole shapes come first, then shapes without the first axes.
    """
    if number < 2 or number != round(number):
        return ""
    products: list[tuple[int, int, str]] = []
    for shape in shapes:
        axes = range(len(shape) + 1)
        for first, last in itertools.combinations(axes, 2):
            sizes = [size for size in shape[first:last] if size != 1]
            if len(sizes) > 1 and math.prod(sizes) == number:
                product = "·".join(map(str, sizes))
                left_out = len(shape) - last
                products.append((left_out, first, product))
    _, _, best = min(products, default=(0, 0, ""))
    return best
