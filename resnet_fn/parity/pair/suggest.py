"""Suggest entries of --map for arrays of two nets that have no counterpart."""

import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from resnet_fn.config.wording import first_few
from resnet_fn.parity.pair.name_map import Shape, leaf_name, role, squeezed
from resnet_fn.parity.trace.data import STATISTICS_NAMES

Shapes = Mapping[str, Shape]

# With more arrays that fit nothing, null is not suggested: then the nets are not the same.
_MOST_NULLS = 4

_MOST_ENTRIES, _MOST_LINES = 60, 6  # of what is printed

_ORDER = "qkv"  # of the parts of a joint projection


def entries(port: Shapes, reference: Shapes) -> dict[str, Any]:
    """Return entries of a map, as docs/parity.md describes them, for the port's unpaired arrays.

    Both arguments are the arrays without a counterpart. An array for which nothing in the reference
    fits gets null. The user has to check the entries.
    """
    suggested: dict[str, Any] = {}
    left, rest = dict(port), dict(reference)
    for suggest in (_cut, _joined, _alike):
        made = suggest(left, rest)
        suggested |= made
        for name in made:
            del left[name]
        for used in _used(made):
            del rest[used]
    return {name: suggested.get(name) for name in port}


def candidates(shape: Shape, reference: Shapes) -> list[str]:
    """Return the names of the reference's arrays that have this shape, apart from axes of size
    1.
    """
    return [name for name, other in reference.items() if squeezed(other) == squeezed(shape)]


def _names_in(entry: Any) -> list[str]:
    """Return the reference's arrays that an entry names."""
    source = entry["from"] if isinstance(entry, dict) else entry
    return source if isinstance(source, list) else [source]


def _used(made: Mapping[str, Any]) -> set[str]:
    """Return the reference's arrays that any of the entries names."""
    used: set[str] = set()
    for entry in made.values():
        if entry is not None:
            used.update(_names_in(entry))
    return used


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _leaf(name: str) -> str:
    """Return the last part of an array's name, as PyTorch calls it."""
    return leaf_name(name.rpartition(".")[2])


def _owner(name: str) -> str:
    """Return the layer around the layer that owns an array: "attn" for "attn.q.weight"."""
    return _layer(_layer(name))


def _groups(names: Shapes) -> dict[tuple[str, str], list[str]]:
    """Return the names by surrounding layer and PyTorch's leaf name, with q, k and v in this
    order.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in names:
        key = _owner(name), _leaf(name)
        groups[key].append(name)
    for group in groups.values():
        roles = {role(_layer(name)) for name in group}
        if roles == set(_ORDER):
            group.sort(key=_place_in_joint)
    return groups


def _place_in_joint(name: str) -> int:
    """Return the place of an array in a joint projection of q, k and v."""
    return _ORDER.index(role(_layer(name)))


def _make_up(parts: Sequence[Shape], whole: Shape) -> bool:
    """Return whether arrays of these shapes, joined along axis 0, have the shape of the whole."""
    if len(parts) < 2:
        return False
    rows = 0
    others = set()
    for part in map(squeezed, parts):
        if not part:
            return False
        rows += part[0]
        others.add(part[1:])
    joined = [(rows, *other) for other in others]
    return joined == [squeezed(whole)]


def _wholes(parts: Shapes, wholes: Shapes) -> list[tuple[list[str], str]]:
    """Return pairs (parts that make up one array, this array)."""
    made = []
    left = dict(wholes)
    for (_, leaf), group in _groups(parts).items():
        shapes = [parts[name] for name in group]
        for name, shape in left.items():
            if _leaf(name) == leaf and _make_up(shapes, shape):
                del left[name]
                made.append((group, name))
                break
    return made


def _cut(port: Shapes, reference: Shapes) -> dict[str, Any]:
    """Suggest rows of one of the reference's arrays for several of the port's."""
    suggested = {}
    for group, whole in _wholes(port, reference):
        start = 0
        for name in group:
            rows = squeezed(port[name])[0]
            stop = start + rows
            suggested[name] = {
                "from": whole,
                "rows": [start, stop],
            }
            start = stop
    return suggested


def _joined(port: Shapes, reference: Shapes) -> dict[str, Any]:
    """Suggest several of the reference's arrays, joined, for one of the port's."""
    return {name: {"from": group} for group, name in _wholes(reference, port)}


def _alike(port: Shapes, reference: Shapes) -> dict[str, Any]:
    """Suggest arrays of the same shape, of the reversed shape, or of as many numbers."""
    suggested: dict[str, Any] = {}
    rest = dict(reference)
    for name, shape in port.items():
        entry = _like(name, shape, rest)
        if entry is not None:
            suggested[name] = entry
            rest.pop(*_names_in(entry))
    return suggested


def _like(name: str, shape: Shape, reference: Shapes) -> Any:
    """Suggest one of the reference's arrays, or return None."""
    same = candidates(shape, reference)
    if same:
        leaf = _leaf(name)
        same.sort(key=lambda candidate: _leaf(candidate) != leaf)
        return same[0]
    count = math.prod(shape)
    as_many = {}
    for array, other in reference.items():
        if math.prod(other) == count > 1:
            as_many[array] = other
    for array, other in as_many.items():
        if len(shape) == 2 and other == shape[::-1]:
            return {"from": array, "transpose": [1, 0]}
    for array in as_many:
        return {"from": array, "shape": list(shape)}
    return None


def advice(
    made: Mapping[str, Any],
    reference: Shapes,
    pairs_all: bool,
    attributes: Collection[str] = (),
    paired: Collection[str] = (),
) -> list[str]:
    """Return lines about suggested entries: what to write to the file of --map.

    `reference` has the unpaired arrays of the reference, and `pairs_all` is whether the entries
    leave no array unpaired. `attributes` has the arrays of the reference that the port has in
    attributes, and `paired` those that have a counterpart.
    """
    lines = []
    guessed = {name: entry for name, entry in made.items() if entry is not None}
    unknown = [name for name, entry in made.items() if entry is None]
    if len(unknown) <= _MOST_NULLS:
        guessed |= dict.fromkeys(unknown)
    if guessed:
        which = "all arrays" if pairs_all and len(guessed) == len(made) else "these arrays"
        nulls = "; null is for an array that the reference computes without" if unknown else ""
        lines.append(f"a file for --map that pairs {which} (check each entry{nulls}):")
        shown = dict(itertools.islice(guessed.items(), _MOST_ENTRIES))
        lines.append(json.dumps(shown, ensure_ascii=False))
        left = len(guessed) - len(shown)
        if left:
            lines.append(f"and {left} more entries of the same kinds")
    for name, entry in guessed.items():
        if not isinstance(entry, str):
            continue
        alike = candidates(reference[entry], reference)
        if len(alike) > 1 and len(lines) < _MOST_LINES:
            alike.sort(key=lambda candidate: candidate != entry)
            lines.append(f"{name} has the shape of {first_few(alike)}")
    missing = reference.keys() - _used(guessed)
    held = [name for name in attributes if name in missing]
    statistics = [name for name in held if _leaf(name) in STATISTICS_NAMES]
    others = [name for name in held if name not in statistics]
    for group, end in ((others, ""), (statistics, " with requires_grad=False")):
        if group:
            lines.append(
                f"the port has {first_few(group)} in attributes that are no Parameters, which take "
                f"no weights; make them Parameters{end}"
            )
    names = [name for name in reference if name in missing and name not in held]
    if names:
        layers = _layers_of(names, [*paired, *held]) if paired and not made else []
        fix = "; if the reference does not use them, build it without them: "
        fix = fix + first_few(layers) if layers else ""
        lines.append(f"the port has no array that fits the reference's {first_few(names)}{fix}")
    return lines


def _layers_of(names: Sequence[str], others: Collection[str]) -> list[str]:
    """Return statements that remove the outermost layers with these arrays alone."""
    layers = []
    for name in names:
        path = ""
        for part in name.split(".")[:-1]:
            path = f"{path}.{part}" if path else part
            if not any(other.startswith(f"{path}.") for other in others):
                layers.append(f"model.{path} = None")
                break
    # layers of a list or a sequence are reached by their index
    return [re.sub(r"\.(\d+)(?=[. ])", r"[\1]", layer) for layer in dict.fromkeys(layers)]
