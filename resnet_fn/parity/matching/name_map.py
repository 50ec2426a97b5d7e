"""Which of a net's parameters and layers is which of the reference's."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.matching.source import Source


@dataclasses.dataclass(frozen=True)
class NameMap:
    """Which is which.

    Attributes:
        how: "names" or "execution order and shapes".
        parameters: the MindSpore parameter's name → what of the reference it is.
        layers: the MindSpore layer's path → the reference's.
        problems: what has no counterpart, or another shape; empty when everything fits.
        tied: names of the reference that are one array.
    """

    how: str
    parameters: dict[str, Source]
    layers: dict[str, str]
    problems: tuple[str, ...]
    tied: tuple[tuple[str, ...], ...] = ()

    def sources(self, name: str) -> tuple[str, ...]:
        """The reference's parameters that one of ours is made of; of what is no parameter, the name itself.

        What the reference shares goes by its first name, as in its optimizer.
        """
        first = {one: group[0] for group in self.tied for one in group}
        names = self.parameters[name].names if name in self.parameters else (name,)
        return tuple(first.get(one, one) for one in names)

    def rename(self, theirs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The reference's arrays under our names, cut and joined as ours are; what it does not have is left out."""
        find = self._find(theirs)
        built = {name: source.build(find) for name, source in self.parameters.items()}
        return {name: array for name, array in built.items() if array is not None}

    def seams(self, theirs: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
        """Where our joined arrays have their seams: the row at which each further part begins."""
        find = self._find(theirs)
        found = {name: source.seams(find) for name, source in self.parameters.items() if not source.join}
        return {name: rows for name, rows in found.items() if rows}

    def _find(self, theirs: Mapping[str, np.ndarray]) -> "_Find":
        return _Find(theirs, {name: group for group in self.tied for name in group})


@dataclasses.dataclass(frozen=True)
class _Find:
    """The reference's array of a name, or of another name of the same array."""

    arrays: Mapping[str, np.ndarray]
    groups: Mapping[str, tuple[str, ...]]

    def __call__(self, name: str) -> np.ndarray | None:
        names = (name, *self.groups.get(name, ()))
        return next((self.arrays[one] for one in names if one in self.arrays), None)
