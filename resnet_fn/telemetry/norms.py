"""`LayerNorms` measures the norms of gradients, weights and updates for each group of layers."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from mindspore import Parameter, Tensor

from resnet_fn.models.parts import group_of


class LayerNorms:
    """Measures norms once in `every` updates (0: never).

    `group` maps the name of a weight to a group of layers.
    """

    def __init__(
        self, trained: Sequence[Parameter], every: int, group: Callable[[str], str] = group_of
    ) -> None:
        self._weights = trained
        self._groups = [group(parameter.name) for parameter in self._weights]
        self._every = every
        self._before: list[np.ndarray] = []

    def before(self, update: int) -> None:
        """Copy the weights before `update` (counted from 1) if the norms of this update are
        measured.
        """
        if self._every > 0 and update % self._every == 0:
            self._before = [parameter.numpy().copy() for parameter in self._weights]

    def after(self, squares: Tensor) -> dict[str, dict[str, float]]:
        """Return 2-norms {kind: {group: norm}}, or {} if the update is not measured.

        For `squares` see `StepResult`.
        """
        if not self._before:
            return {}
        gradients = squares.numpy()
        if len(gradients) > len(self._weights):
            starts = np.cumsum(
                [0, *(math.prod(parameter.shape) for parameter in self._weights[:-1])]
            )
            gradients = np.add.reduceat(gradients.astype(np.float64), starts)
        after = [parameter.numpy() for parameter in self._weights]
        changed = [_square(new - old) for new, old in zip(after, self._before, strict=True)]
        self._before = []
        return {
            "gradient": self._by_group(gradients.tolist()),  # before clipping
            "weight": self._by_group(map(_square, after)),
            "update": self._by_group(changed),
        }

    def _by_group(self, squares: Iterable[float]) -> dict[str, float]:
        sums: dict[str, float] = {}
        for group, square in zip(self._groups, squares, strict=True):
            sums[group] = sums.get(group, 0.0) + square
        return {
            group: math.sqrt(value) if value >= 0 else math.nan for group, value in sums.items()
        }


def _square(array: np.ndarray) -> float:
    flat = array.reshape(-1)
    return float(np.dot(flat, flat))
