"""Where a net's array comes from: one or several of the reference's, transposed, cut, joined, reshaped."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the reference's arrays, or a piece of it.

    Attributes:
        name: the reference's.
        transpose: the order of its axes, as `numpy.transpose`; None as they are.
        rows: (first, behind the last) along `axis`, after the transposition; None all.
        share: (which, of how many) equal pieces along `axis`; None the whole.
        axis: along which it is cut.
    """

    name: str
    transpose: tuple[int, ...] | None = None
    rows: tuple[int, int] | None = None
    share: tuple[int, int] | None = None
    axis: int = 0

    def take(self, array: np.ndarray) -> np.ndarray:
        """The part of the reference's array.

        Raises:
            ValueError: the array has other axes, or fewer rows.
        """
        if self.transpose is not None:
            if sorted(self.transpose) != list(range(array.ndim)):
                raise ValueError(f"transpose {list(self.transpose)} does not fit {self.name} {list(array.shape)}")
            array = array.transpose(self.transpose)
        if self.rows is None and self.share is None:
            return array
        if self.axis >= array.ndim:
            raise ValueError(f"axis {self.axis} does not fit {self.name} {list(array.shape)}")
        size = array.shape[self.axis]
        first, behind = self._rows(size)
        if not 0 <= first < behind <= size:
            raise ValueError(f"rows {[first, behind]} do not fit {self.name} {list(array.shape)}")
        return array.take(range(first, behind), self.axis)

    def _rows(self, size: int) -> tuple[int, int]:
        if self.share is None:
            return self.rows or (0, size)
        which, count = self.share
        return which * size // count, (which + 1) * size // count

    def __str__(self) -> str:
        words = self.name
        if self.transpose is not None:
            words += f" transposed {list(self.transpose)}"
        if self.share is not None:
            words += f" [part {self.share[0] + 1} of {self.share[1]}]"
        if self.rows is not None:
            words += f" [{self.rows[0]}:{self.rows[1]}]" + (f" of axis {self.axis}" if self.axis else "")
        return words


@dataclasses.dataclass(frozen=True)
class Source:
    """What one of a net's arrays is made of.

    Attributes:
        parts: in order.
        join: the axis along which they are joined.
        shape: to what the result is reshaped; None as it is.
    """

    parts: tuple[Part, ...]
    join: int = 0
    shape: Shape | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The reference's arrays that it takes."""
        return tuple(dict.fromkeys(part.name for part in self.parts))

    def build(self, find: Callable[[str], np.ndarray | None]) -> np.ndarray | None:
        """The array; None if one of the reference's is not there.

        Args:
            find: the reference's name → its array.

        Raises:
            ValueError: the parts do not fit.
        """
        taken = []
        for part in self.parts:
            array = find(part.name)
            if array is None:
                return None
            taken.append(part.take(array))
        array = taken[0] if len(taken) == 1 else np.concatenate(taken, self.join)
        if self.shape is None:
            return np.ascontiguousarray(array) if array.ndim else array
        if array.size != int(np.prod(self.shape)):
            raise ValueError(f"{' + '.join(self.names)} {list(array.shape)} cannot be reshaped to {list(self.shape)}")
        return np.ascontiguousarray(array).reshape(self.shape)

    def seams(self, find: Callable[[str], np.ndarray | None]) -> list[int]:
        """Where one part ends and the next begins, along `join`; empty where there is one part."""
        sizes = [part.take(array).shape[self.join] for part in self.parts if (array := find(part.name)) is not None]
        return [int(end) for end in np.cumsum(sizes)[:-1]]

    def __str__(self) -> str:
        words = " + ".join(map(str, self.parts))
        return words if self.shape is None else f"{words} as {list(self.shape)}"


def plain(name: str) -> Source:
    """One array as it is."""
    return Source((Part(name),))


def thirds(name: str, array: np.ndarray) -> list[Part]:
    """The parts of an array that may be an attention's fused projections; none where it cannot be."""
    if array.ndim not in (1, 2) or array.shape[0] % 3 or not array.size:
        return []
    return [Part(name, share=(index, 3)) for index in range(3)]


def squeezed(shape: Sequence[int]) -> Shape:
    """A shape without its ones: MindSpore's Conv1d weight is [O, I, 1, k], torch's [O, I, k]."""
    return tuple(size for size in shape if size != 1)


def joined(pieces: Sequence[tuple[str, int, int]]) -> Source:
    """A source made of pieces (name, which, of how many); all pieces of one array in their order are the array."""
    parts: list[Part] = []
    index = 0
    while index < len(pieces):
        name, which, count = pieces[index]
        whole = [(name, number, count) for number in range(count)]
        if list(pieces[index : index + count]) == whole:
            parts.append(Part(name))
            index += count
        else:
            parts.append(Part(name, share=(which, count)))
            index += 1
    return Source(tuple(parts))
