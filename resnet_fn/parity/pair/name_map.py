"""Build a net's arrays from the reference's arrays, which are copied, transposed, cut or joined."""

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from resnet_fn.weights.names import LEAVES

Shape = tuple[int, ...]

# MindSpore's leaf name → torch's
_LEAVES = LEAVES | {"embedding_table": "weight", "w": "weight"}

# The names of an attention's projections: q_proj, query, to_q, wq, …
_PROJECTION = re.compile(
    r"^(?:to_|w|wx|linear_|lin_|dense_|fc_|proj_)?(?P<role>q|k|v|query|key|value|queries|keys|values)"
    r"(?:_proj|_lin|_linear|_dense|_fc|_layer)?$",
    re.IGNORECASE,
)

VALUE_KIND = "values"

GRADIENT_KIND = "gradients"

MASK_KIND = "masks"


def leaf_name(leaf: str) -> str:
    """Return PyTorch's word for the last part of a parameter's name, for example "weight" for
    "gamma".
    """
    leaf = leaf.removeprefix("bn2d.")  # nn.BatchNorm3d is a cell around a BatchNorm2d
    return _LEAVES.get(leaf, leaf)


def common_name(name: str) -> str:
    """Return a parameter's name with PyTorch's last part, for example "bn.weight" for
    "bn.gamma".
    """
    prefix, dot, leaf = name.rpartition(".")
    return f"{prefix.removesuffix('.bn2d')}{dot}{leaf_name(leaf)}"


def role(layer: str) -> str:
    """Return "q", "k" or "v" if a layer has the name of an attention's projection, else an empty
    string.
    """
    projection = _PROJECTION.match(layer.rpartition(".")[2])
    return projection["role"][0].lower() if projection else ""


@dataclasses.dataclass(frozen=True)
class Part:
    """A whole array of the reference, or a piece of one array."""

    name: str
    # the order of the axes, as in `numpy.transpose`; None keeps it
    transpose: tuple[int, ...] | None = None
    # (start, stop) along `axis`, after the transposition; None takes all
    rows: tuple[int, int] | None = None
    share: tuple[int, int] = (0, 1)  # (index, count): one of `count` equal pieces along `axis`
    axis: int = 0  # the axis of `rows` and `share`
    sign: int = 1  # 1, or -1 for the negative array

    def take(self, array: np.ndarray) -> np.ndarray:
        """Cut this part out of `array`.

        Raises ValueError if the part does not fit the array's shape.
        """
        if self.transpose is not None:
            order = list(self.transpose)
            if sorted(order) != list(range(array.ndim)):
                shape = list(array.shape)
                raise ValueError(
                    f"transpose {order} must list each axis of {self.name} {shape} once"
                )
            array = array.transpose(self.transpose)
        index, count = self.share
        if self.rows is None and count == 1:
            return array
        axis = self.axis
        if axis >= array.ndim:
            raise ValueError(f"axis {axis} does not exist in {self.name} {list(array.shape)}")
        size = array.shape[axis]
        piece = (index * size // count, (index + 1) * size // count)
        start, stop = self.rows or piece
        if not 0 <= start < stop <= size:
            raise ValueError(
                f"rows {[start, stop]} must ascend and lie in 0..{size} (axis {axis} of "
                f"{self.name})"
            )
        return array.take(range(start, stop), axis)

    def __str__(self) -> str:
        text = "-" * (self.sign < 0) + self.name
        if self.transpose is not None:
            text += f" transposed {list(self.transpose)}"
        index, count = self.share
        if count > 1:
            text += f" [part {index + 1} of {count}]"
        if self.rows is not None:
            start, stop = self.rows
            text += f" [{start}:{stop}]"
            text += f" of axis {self.axis}" if self.axis else ""
        return text


# How parts are added, by what they are. Each part's gradient is the gradient of the sum.
_ADDED: dict[str, Callable[..., np.ndarray]] = {
    VALUE_KIND: np.sum,
    GRADIENT_KIND: np.mean,
    MASK_KIND: np.any,
}


@dataclasses.dataclass(frozen=True)
class MadeOf:
    """The pieces of the reference's arrays from which one of the port's arrays is built."""

    parts: tuple[Part, ...]  # pieces of the reference's arrays, in order
    join: int = 0  # the axis along which the parts are joined
    shape: Shape | None = None  # the shape that the result gets; None keeps it
    added: bool = False  # the parts are added, not joined

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the reference's arrays that are used, without repetition."""
        return tuple(dict.fromkeys(part.name for part in self.parts))

    def build(
        self, find: Callable[[str], np.ndarray | None], what: str = VALUE_KIND
    ) -> np.ndarray | None:
        """Build the port's array from the reference's arrays, which `find` returns by name.

        Returns None if `find` returns None for a part. Raises ValueError if the parts do not fit
        together. If parts are added, the result is their sum if `what` is VALUE_KIND, their mean if
        `what` is GRADIENT_KIND, and true where any part is if `what` is MASK_KIND. Masks have no
        sign.
        """
        taken = []
        for part in self.parts:
            array = find(part.name)
            if array is None:
                return None
            piece = part.take(array)
            is_negative = part.sign < 0 and what != MASK_KIND
            if is_negative and piece.dtype == bool:
                raise ValueError(f"--map: {part.name} is boolean; give it without the -")
            taken.append(-piece if is_negative else piece)
        if self.added:
            array = _ADDED[what](np.stack(taken), 0)
        elif len(taken) == 1:
            array = taken[0]
        else:
            array = np.concatenate(taken, self.join)
        shape = self.shape
        if shape is None:
            return np.ascontiguousarray(array) if array.ndim else array
        if array.size != int(np.prod(shape)):
            names = " + ".join(self.names)
            array_shape = list(array.shape)
            raise ValueError(f"{names} {array_shape} cannot be reshaped to {list(shape)}")
        return np.ascontiguousarray(array).reshape(shape)

    def __str__(self) -> str:
        parts = [str(part) for part in self.parts]
        text = f"the sum of {', '.join(parts)}" if self.added else " + ".join(parts)
        return text if self.shape is None else f"{text} as {list(self.shape)}"


def whole_array(name: str) -> MadeOf:
    """Return a `MadeOf` that stands for the whole array `name` of the reference."""
    return MadeOf((Part(name),))


def squeezed(shape: Sequence[int]) -> Shape:
    """Return a shape without axes of size 1, such as the axis that MindSpore's Conv1d adds to a
    weight.
    """
    return tuple(size for size in shape if size != 1)


def joined(pieces: Sequence[Part]) -> MadeOf:
    """Join pieces of arrays along axis 0.

    If all pieces of an array follow in order, the whole array replaces them.
    """
    parts: list[Part] = []
    rest = list(pieces)
    while rest:
        first = rest[0]
        name = first.name
        _, count = first.share
        whole = rest[:count] == [Part(name, share=(number, count)) for number in range(count)]
        parts.append(Part(name) if whole else first)
        del rest[: count if whole else 1]
    return MadeOf(tuple(parts))


@dataclasses.dataclass(frozen=True)
class NameMap:
    """The pairing of the port's parameters and layers with the reference's."""

    how: str  # "names" or "execution order and shapes"
    # the port's parameter's name → the reference's arrays from which it is built
    parameters: dict[str, MadeOf]
    layers: dict[str, str]  # the MindSpore layer's path → the reference's
    # parameters without a counterpart, or of another shape; empty when everything fits
    problems: tuple[str, ...]
    tied: tuple[tuple[str, ...], ...] = ()  # groups of the reference's names that are one array
    advice: tuple[str, ...] = ()  # if there are problems: entries for --map that may correct them

    @functools.cached_property
    def _firsts(self) -> dict[str, str]:
        return {name: group[0] for group in self.tied for name in group}

    def first(self, name: str) -> str:
        """Return the first name of one of the reference's arrays: a shared one has several."""
        return self._firsts.get(name, name)

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the first names of the reference's arrays from which `name` is built."""
        source = self.parameters.get(name)
        names = source.names if source else (name,)
        return tuple(map(self.first, names))

    @functools.cached_property
    def paired(self) -> set[str]:
        """The first names of the reference's arrays from which arrays of the port are built."""
        return {source for name in self.parameters for source in self.sources(name)}

    def rename(
        self, reference: Mapping[str, np.ndarray], what: str = VALUE_KIND
    ) -> dict[str, np.ndarray]:
        """Return the reference's arrays under the port's names and in the port's shapes.

        Missing arrays are left out.
        """
        find = self._find(reference)
        built = {}
        for name, source in self.parameters.items():
            array = source.build(find, what)
            if array is not None:
                built[name] = array
        return built

    def seams(self, reference: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
        """For each joined array, return the rows at which the second and later parts begin."""
        find = self._find(reference)
        seams = {}
        for name, source in self.parameters.items():
            taken = []
            for part in source.parts:
                array = find(part.name)
                if array is not None:
                    taken.append(part.take(array))
            if len(taken) > 1 and not source.join and not source.added:
                lengths = [len(piece) for piece in taken]
                seams[name] = np.cumsum(lengths)[:-1].tolist()
        return seams

    def one_of(self, name: str, reference: Collection[str]) -> str | None:
        """Return the name that an array has in `reference`, or None if it is not there."""
        groups = (group for group in self.tied if name in group)
        for alias in (name, *next(groups, ())):
            if alias in reference:
                return alias
        return None

    def _find(self, reference: Mapping[str, np.ndarray]) -> Callable[[str], np.ndarray | None]:
        def find(name: str) -> np.ndarray | None:
            alias = self.one_of(name, reference)
            return None if alias is None else reference[alias]

        return find
