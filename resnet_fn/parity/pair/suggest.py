"""Suggest entries of --map for arrays of two nets that have no counterpart."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from resnet_fn.config.hints import few
from resnet_fn.parity.pair.name_map import Shape, leaf_name, role, squeezed

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
    for find in (_cut, _joined, _alike):
        found = find(left, rest)
        suggested |= found
        for name in found:
            del left[name]
        for used in {one for entry in found.values() for one in _names_in(entry)}:
            del rest[used]
    return {name: suggested.get(name) for name in port}


def candidates(shape: Shape, reference: Shapes) -> list[str]:
    """Return the names of the reference's arrays that have this shape, apart from axes of size
    1.
    """
    return [name for name, other in reference.items() if squeezed(other) == squeezed(shape)]


def _names_in(entry: Any) -> list[str]:
    """Return the reference's arrays that an entry names."""
    given = entry["from"] if isinstance(entry, dict) else entry
    return given if isinstance(given, list) else [given]


def _owner(name: str) -> str:
    """Return the layer around the layer that owns an array: "attn" for "attn.q.weight"."""
    return name.rpartition(".")[0].rpartition(".")[0]


def _groups(names: Shapes) -> dict[tuple[str, str], list[str]]:
    """Return the names by surrounding layer and PyTorch's leaf name, with q, k and v in this
    order.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in names:
        groups[_owner(name), leaf_name(name.rpartition(".")[2])].append(name)
    for group in groups.values():
        roles = [role(name.rpartition(".")[0]) for name in group]
        if set(roles) == set(_ORDER):
            group.sort(key=lambda name: _ORDER.index(role(name.rpartition(".")[0])))
    return groups


def _make_up(parts: Sequence[Shape], whole: Shape) -> bool:
    """Return whether arrays of these shapes, joined along axis 0, have the shape of the whole."""
    flat = [squeezed(part) for part in parts]
    others = {part[1:] for part in flat}
    rows = sum(part[0] for part in flat if part)
    if len(parts) < 2 or len(others) != 1 or not all(flat):
        return False
    return (rows, *others.pop()) == squeezed(whole)


def _wholes(parts: Shapes, wholes: Shapes) -> list[tuple[list[str], str]]:
    """Return pairs (parts that make up one array, this array)."""
    found = []
    taken: set[str] = set()
    for (_, leaf), group in _groups(parts).items():
        for name, shape in wholes.items():
            same_leaf = leaf_name(name.rpartition(".")[2]) == leaf
            if same_leaf and name not in taken and _make_up([parts[one] for one in group], shape):
                taken.add(name)
                found.append((group, name))
                break
    return found


def _cut(port: Shapes, reference: Shapes) -> dict[str, Any]:
    """Suggest rows of one of the reference's arrays for several of the port's."""
    suggested = {}
    for group, whole in _wholes(port, reference):
        start = 0
        for name in group:
            stop = start + squeezed(port[name])[0]
            suggested[name] = {"from": whole, "rows": [start, stop]}
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
        leaf = leaf_name(name.rpartition(".")[2])
        same = candidates(shape, rest)
        same.sort(key=lambda one: leaf_name(one.rpartition(".")[2]) != leaf)
        turned = [one for one, other in rest.items() if other == shape[::-1] and len(shape) == 2]
        as_many = [one for one, other in rest.items() if math.prod(other) == math.prod(shape) > 1]
        if same:
            suggested[name] = same[0]
        elif turned:
            suggested[name] = {"from": turned[0], "transpose": [1, 0]}
        elif as_many:
            suggested[name] = {"from": as_many[0], "shape": list(shape)}
        if name in suggested:
            rest.pop(_names_in(suggested[name])[0])
    return suggested


def advice(made: Mapping[str, Any], reference: Shapes, pairs_all: bool) -> list[str]:
    """Return lines about suggested entries: what to write to the file of --map.

    `reference` has the unpaired arrays of the reference, and `pairs_all` is whether the entries
    leave no array unpaired.
    """
    lines = []
    guessed = {name: entry for name, entry in made.items() if entry is not None}
    unknown = [name for name, entry in made.items() if entry is None]
    if len(unknown) <= _MOST_NULLS:
        guessed |= dict.fromkeys(unknown)
    if guessed:
        words = "all arrays" if pairs_all and len(guessed) == len(made) else "these arrays"
        nulls = "; null is for an array that the reference computes without" if unknown else ""
        lines.append(f"a file for --map that pairs {words} (check each entry{nulls}):")
        shown = dict(list(guessed.items())[:_MOST_ENTRIES])
        lines.append(json.dumps(shown, ensure_ascii=False))
        if len(guessed) > len(shown):
            lines.append(f"and {len(guessed) - len(shown)} more entries of the same kinds")
    used = {one for entry in guessed.values() if entry is not None for one in _names_in(entry)}
    for name, entry in guessed.items():
        if isinstance(entry, str):
            others = [one for one in candidates(reference[entry], reference) if one != entry]
            if others and len(lines) < _MOST_LINES:
                lines.append(f"{name} has the shape of {few([entry, *others])}")
    if missing := [name for name in reference if name not in used]:
        lines.append(f"the port has no array that fits the reference's {few(missing)}")
    return lines
