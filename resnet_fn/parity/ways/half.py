"""Round float32 numbers to as many digits as a shorter float has, in the range of float32."""

import numpy as np

from resnet_fn.parity.trace.tree import Tree, map_tree

DIGITS = {"float16": 11, "bfloat16": 8}  # binary digits of a number


def rounded(array: np.ndarray, half: str) -> np.ndarray:
    """Return the nearest numbers with as many binary digits. None overflows or vanishes."""
    scale = 2.0 ** DIGITS[half]
    fraction, exponent = np.frexp(array)
    digits = np.round(fraction * scale)
    fraction = digits / scale
    nearest: np.ndarray = np.ldexp(fraction, exponent)
    return np.asarray(nearest, array.dtype)  # of an array without axes, NumPy makes a number


def rounded_inputs(inputs: Tree, half: str) -> Tree:
    """Return a net's inputs with rounded floats."""

    def change(leaf: np.ndarray) -> np.ndarray:
        return rounded(leaf, half) if leaf.dtype.kind == "f" else leaf

    changed: Tree = map_tree(change, inputs)
    return changed


def unit(half: str) -> float:
    """Return the largest relative error of rounding."""
    digits = DIGITS[half]
    return 2.0**-digits
