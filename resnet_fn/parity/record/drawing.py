"""Draw the weights and images of a small trace (`trace.drawn`), so that it need not hold them."""

from collections.abc import Collection, Sequence

import numpy as np

from resnet_fn.parity.trace.data import STATISTICS_NAMES
from resnet_fn.parity.trace.drawn import Range, draw, range_of
from resnet_fn.parity.trace.small_file import inputs_title, weights_title
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, map_tree


def is_drawn(name: str, array: np.ndarray, trained: Collection[str]) -> bool:
    """Return whether an array of a net is drawn: trained parameters and BatchNorm's statistics.

    Other arrays, such as a table of positions, have numbers of their own.
    """
    if array.dtype != np.float32 or not array.size or not np.isfinite(array).all():
        return False
    return name in trained or name.endswith(STATISTICS_NAMES)


class Drawing:
    """Draws a net's arrays and a plan's images, and keeps their ranges by name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.ranges: dict[str, Range] = {}

    def weights(
        self, arrays: Arrays, trained: Collection[str], tied: Sequence[tuple[str, ...]]
    ) -> Arrays:
        """Return the arrays of a net that are drawn. Names of one array get the same numbers."""
        first = {name: group[0] for group in tied for name in group}
        return {
            name: self._again(weights_title(first.get(name, name)), array)
            for name, array in arrays.items()
            if is_drawn(name, array, trained)
        }

    def batches(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return the batches with other inputs of float32."""
        return [
            (self._inputs(inputs_title(update), inputs), labels)
            for update, (inputs, labels) in enumerate(batches, 1)
        ]

    def _inputs(self, name: str, inputs: Tree) -> Tree:
        def drawn(leaf: np.ndarray) -> np.ndarray:
            return self._again(name, leaf) if leaf.dtype == np.float32 else leaf

        return map_tree(drawn, inputs)

    def _again(self, name: str, array: np.ndarray) -> np.ndarray:
        self.ranges.setdefault(name, range_of(array))
        return draw(self.seed, name, array.shape, self.ranges[name])
