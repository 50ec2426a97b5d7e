"""Which of a net's arrays is which of the reference's: parts, transposed, cut, joined; their names; what --map says."""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import closest, near_path

Shape = tuple[int, ...]

# MindSpore's leaf names: torch's. nn.BatchNorm3d is a cell around a BatchNorm2d.
_LEAVES = {
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
    "w": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_FUSED = re.compile(r"^(?:in_proj|qkv|qkv_proj|to_qkv|wqkv|c_attn|query_key_value)[._](weight|bias)$", re.IGNORECASE)
_ONE = re.compile(
    r"^(?:to_|w|wx|linear_|lin_|dense_|fc_|proj_)?(?P<role>q|k|v|query|key|value|queries|keys|values)"
    r"(?:_proj|_lin|_linear|_dense|_fc|_layer)?[._](?P<leaf>weight|bias)$",
    re.IGNORECASE,
)
_OUT = re.compile(
    r"^(?:out_proj|proj|out|to_out|to_out\.0|o_proj|wo|o|dense|out_lin|linear_out|projection|c_proj|fc_out|out_linear)"
    r"[._](weight|bias)$",
    re.IGNORECASE,
)

Piece = tuple[str, int, int]  # a parameter's name, which part of it, of how many


def leaf_name(leaf: str) -> str:
    """A leaf as torch calls it: "gamma" is "weight"."""
    leaf = leaf.removeprefix("bn2d.")
    return _LEAVES.get(leaf, leaf)


def role(layer: str) -> str:
    """Which of an attention's projections a layer is by its name: "q", "k", "v", "" where the name does not say."""
    found = _ONE.match(layer.rpartition(".")[2] + ".weight")
    return found["role"][0].lower() if found else ""


def pieces(names: Iterable[str]) -> dict[str, Piece]:
    """What each array holds, by a key that both frameworks share.

    "bn.gamma" holds "bn.weight"; an attention's "in_proj_weight" or "qkv.weight" holds "q.weight", "k.weight" and
    "v.weight" in equal parts.
    """
    known = list(names)
    attentions = {prefix for name in known for prefix, rest in _splits(name) if _FUSED.match(rest) or _ONE.match(rest)}
    found: dict[str, Piece] = {}
    for name in known:
        keys = _keys(name, attentions)
        if any(key in found for key in keys):  # "q.weight" beside "query.weight": no names of one attention
            keys = (name,)
        for index, key in enumerate(keys):
            found[key] = (name, index, len(keys))
    return found


def _keys(name: str, attentions: set[str]) -> tuple[str, ...]:
    for prefix, rest in _splits(name):
        if fused := _FUSED.match(rest):
            return tuple(f"{prefix}{one}.{fused[1]}" for one in "qkv")
        if one := _ONE.match(rest):
            return (f"{prefix}{one['role'][0].lower()}.{one['leaf']}",)
        if prefix in attentions and (out := _OUT.match(rest)):
            return (f"{prefix}out.{out[1]}",)
    prefix, dot, leaf = name.rpartition(".")
    return (f"{prefix.removesuffix('.bn2d')}{dot}{leaf_name(leaf)}",)


def _splits(name: str) -> list[tuple[str, str]]:
    """The name cut before its last two and three words: ("block.0.attn.", "q.weight")."""
    words = name.split(".")
    return [
        (".".join(words[:-count]) + ("." if len(words) > count else ""), ".".join(words[-count:]))
        for count in (1, 2, 3)
        if len(words) >= count
    ]


def holders(found: dict[str, Piece]) -> dict[str, list[str]]:
    """The keys of each array, in order."""
    keys: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, (name, index, _) in found.items():
        keys[name].append((index, key))
    return {name: [key for _, key in sorted(entries)] for name, entries in keys.items()}


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
        if self.share is None:
            first, behind = self.rows or (0, size)
        else:
            which, count = self.share
            first, behind = which * size // count, (which + 1) * size // count
        if not 0 <= first < behind <= size:
            raise ValueError(f"rows {[first, behind]} do not fit {self.name} {list(array.shape)}")
        return array.take(range(first, behind), self.axis)

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

    def _find(self, theirs: Mapping[str, np.ndarray]) -> Callable[[str], np.ndarray | None]:
        """The reference's array of a name, or of another name of the same array."""
        groups = {name: group for group in self.tied for name in group}
        return lambda name: next((theirs[one] for one in (name, *groups.get(name, ())) if one in theirs), None)


Corrections = dict[str, Source]

_PART = ("transpose", "rows", "axis")


def read_map(path: str) -> Corrections:
    """Read a file of corrections, a JSON such as

        {
          "head.weight": "classifier.weight",
          "body": "inner",
          "attn.q.weight": {"from": "attn.in_proj_weight", "rows": [0, 64]},
          "embed.weight": {"from": "tokens.weight", "transpose": [1, 0]},
          "attn.qkv.weight": {"from": ["attn.q.weight", "attn.k.weight", {"name": "attn.v.weight"}], "join": 0},
          "conv.weight": {"from": "conv.weight", "shape": [8, 4, 1, 3]}
        }

    Left stands the MindSpore net's parameter (or layer, then all that it holds), right the reference's. `transpose` is
    done first, then `rows` [first, behind the last) along `axis` (default 0) are cut out, then parts are joined along
    `join` (default 0), then the result is reshaped to `shape`.

    Raises:
        ValueError: the file is not there, is no JSON object, or an entry says nothing that is known.
    """
    try:
        found = json.loads(Path(path).read_text())
    except OSError as error:
        hint = near_path(path, "name a JSON file")
        raise ValueError(f"--map: {path} cannot be read ({error.strerror}); {hint}") from None
    except ValueError as error:
        raise ValueError(f"--map: {path} is no JSON ({error}); see docs/parity.md") from None
    if not isinstance(found, dict):
        raise ValueError(f'--map: {path} holds {type(found).__name__}; give an object {{"ours": "theirs"}}')
    return {name: _source(name, entry) for name, entry in found.items()}


def _source(name: str, entry: Any) -> Source:
    if isinstance(entry, str):
        return plain(entry)
    if not isinstance(entry, dict) or "from" not in entry:
        raise ValueError(f'--map: {name}: give the reference\'s name, or an object with "from"')
    for key in entry:
        if key not in ("from", "join", "shape", *_PART):
            raise ValueError(f"--map: {name}: {key!r} is unknown; {closest(key, ('from', 'join', 'shape', *_PART))}")
    listed = entry["from"] if isinstance(entry["from"], list) else [entry["from"]]
    common = {key: entry[key] for key in _PART if key in entry}
    shape = _whole(name, "shape", entry["shape"], None) if "shape" in entry else None
    join = _whole(name, "join", [entry.get("join", 0)], 1)[0]
    return Source(tuple(_part(name, one, common) for one in listed), join, shape)


def _part(name: str, one: Any, common: Mapping[str, Any]) -> Part:
    given = {**common, **(one if isinstance(one, dict) else {"name": one})}
    if not isinstance(given.get("name"), str) or not set(given) <= {"name", *_PART}:
        raise ValueError(f'--map: {name}: "from" is a name, a list of names, or of objects with "name"; not {one!r}')
    rows = _whole(name, "rows", given["rows"], 2) if "rows" in given else None
    transpose = _whole(name, "transpose", given["transpose"], None) if "transpose" in given else None
    axis = _whole(name, "axis", [given.get("axis", 0)], 1)[0]
    return Part(given["name"], transpose, (rows[0], rows[1]) if rows else None, None, axis)


def _whole(name: str, key: str, values: Any, count: int | None) -> Shape:
    fits = isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
    if not fits or (count is not None and len(values) != count):
        raise ValueError(f"--map: {name}: {key} {values} is not a list of {count or 'whole'} whole numbers from 0")
    return tuple(values)


def resolve(
    corrections: Corrections, ours: Mapping[str, Shape], theirs: Mapping[str, Shape]
) -> tuple[Corrections, dict[str, str]]:
    """Spread corrections of layers over their parameters, and check every name and shape.

    Returns:
        Our parameters' sources, and layers that are named: ours → theirs.

    Raises:
        ValueError: a name that neither net has, or parts that do not make our shape.
    """
    found: Corrections = {}
    layers: dict[str, str] = {}
    for name, source in corrections.items():
        inside = {one: one[len(name) + 1 :] for one in ours if one.startswith(f"{name}.")}
        if name in ours:
            for one in source.names:
                if one not in theirs:
                    raise ValueError(f"--map: {name}: the reference has no {one!r}; {closest(one, theirs)}")
            found[name] = dataclasses.replace(source, parts=tuple(_third(part, theirs) for part in source.parts))
            if len(source.names) == 1 and source == plain(source.names[0]):
                layers[name.rpartition(".")[0]] = source.names[0].rpartition(".")[0]
        elif inside:
            if source != plain(source.parts[0].name):
                raise ValueError(f"--map: {name} is a layer; give the reference's layer, or name its parameters")
            other = source.parts[0].name
            layers[name] = other
            known = {leaf_name(one[len(other) + 1 :]): one for one in theirs if one.startswith(f"{other}.")}
            if not known:
                raise ValueError(f"--map: {name}: the reference has no {other!r}; {closest(other, _layers(theirs))}")
            for one, leaf in inside.items():
                if leaf_name(leaf) in known:
                    found[one] = plain(known[leaf_name(leaf)])
        else:
            raise ValueError(f"--map: {name!r} is no parameter of the net; {closest(name, [*ours, *_layers(ours)])}")
    return found, {ours_layer: layer for ours_layer, layer in layers.items() if ours_layer and layer}


def _third(part: Part, theirs: Mapping[str, Shape]) -> Part:
    """Rows that are one of three projections as what they are: its rounding is known."""
    size = theirs[part.name][0] if theirs[part.name] else 0
    thirds = {(index * size // 3, (index + 1) * size // 3): (index, 3) for index in range(3) if size and size % 3 == 0}
    if part.transpose is not None or part.axis or part.rows not in thirds:
        return part
    return dataclasses.replace(part, rows=None, share=thirds[part.rows])


def _layers(names: Mapping[str, Shape]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
