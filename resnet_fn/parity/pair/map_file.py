"""Read the file of --map, which corrects how names are paired."""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.hints import suggest_name
from resnet_fn.config.path_hints import near_path
from resnet_fn.parity.pair.name_map import MadeOf, Part, Shape, leaf_name, whole_array

Corrections = dict[str, MadeOf]

_PART = ("transpose", "rows", "axis")


def read_map(path: str) -> Corrections:
    """Read the JSON file of --map, whose form docs/parity.md describes.

    Raises ValueError if the file is invalid.
    """
    try:
        text = Path(path).read_text()
        entries = json.loads(text)
    except OSError as error:
        nearest = near_path(path, "give a JSON file")
        raise ValueError(f"--map: {path} cannot be read ({error.strerror}); {nearest}") from None
    except ValueError as error:
        raise ValueError(f"--map: {path} is not valid JSON ({error}); see docs/parity.md") from None
    if not isinstance(entries, dict):
        got = type(entries).__name__
        raise ValueError(
            f'--map: {path} must hold an object {{"name in the port": "name in the reference"}}, '
            "but it holds "
            f"{got}"
        )
    corrections: Corrections = {}
    for name, entry in entries.items():
        try:
            corrections[name] = made_of(entry)
        except ValueError as error:
            quoted = json.dumps(name, ensure_ascii=False)
            key = re.search(re.escape(quoted) + r"\s*:", text)
            line = text.count("\n", 0, key.start() if key else 0) + 1
            raise ValueError(f"--map: {path} line {line}: {name}: {error}") from None
    return corrections


def made_of(entry: Any) -> MadeOf:
    """Return what an entry of the file describes.

    Raises ValueError if the entry is invalid.
    """
    if entry is None:  # no counterpart
        return MadeOf(())
    entry = {"from": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "from" not in entry:
        raise ValueError(
            'an entry must be a name in the reference, {"from": names in the reference, …}, or '
            "null (no counterpart)"
        )
    keys = ("from", "join", "shape", *_PART)
    for key in entry:
        if key not in keys:
            raise ValueError(f"the key {key!r} is unknown; {suggest_name(key, keys)}")
    source = entry["from"]
    listed = source if isinstance(source, list) else [source]
    terms = _terms(source) if isinstance(source, str) else [(item, 1) for item in listed]
    common = {key: entry[key] for key in _PART if key in entry}
    shape = _whole("shape", entry["shape"], None) if "shape" in entry else None
    join = _whole("join", [entry.get("join", 0)], 1)[0]
    parts = []
    for term, sign in terms:
        part = _part(term, common)
        parts.append(dataclasses.replace(part, sign=sign))
    is_sum = len(terms) > len(listed)
    return MadeOf(tuple(parts), join, shape, is_sum)


_SIGNS = {"+", "-"}


def _terms(text: str) -> list[tuple[str, int]]:
    """Split a sum such as "b_ih - b_hh" into names and signs: [("b_ih", 1), ("b_hh", -1)]."""
    tokens = re.sub(r"^\s*-", "- ", text).split()
    if tokens[:1] != ["-"]:
        tokens = ["+", *tokens]
    signs = tokens[::2]
    names = tokens[1::2]
    if len(signs) != len(names) or not set(signs) <= _SIGNS or _SIGNS & set(names):
        raise ValueError(
            f'"{text}" is neither a name nor a sum; write "b_ih + b_hh", "a - b" or "-scale"'
        )
    return [(name, int(f"{sign}1")) for sign, name in zip(signs, names, strict=True)]


def _part(got: Any, common: Mapping[str, Any]) -> Part:
    fields = {**common, **(got if isinstance(got, dict) else {"name": got})}
    if not isinstance(fields.get("name"), str) or not set(fields) <= {"name", *_PART}:
        raise ValueError(
            '"from" must be a name, a sum "a + b", or a list of names or {"name": …}, not '
            f"{got!r}"
        )
    rows = _whole("rows", fields["rows"], 2) if "rows" in fields else None
    transpose = _whole("transpose", fields["transpose"], None) if "transpose" in fields else None
    axis = _whole("axis", [fields.get("axis", 0)], 1)[0]
    return Part(fields["name"], transpose, (rows[0], rows[1]) if rows else None, axis=axis)


def _whole(key: str, values: Any, count: int | None) -> Shape:
    fits = isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values
    )
    if not fits or (count is not None and len(values) != count):
        expected = "a whole number" if count == 1 else f"a list of {count or 'any'} whole numbers"
        raise ValueError(
            f"{key} must be {expected} ≥ 0, but it is {values[0] if count == 1 else values}"
        )
    return tuple(values)


def resolve(
    corrections: Corrections, port: Mapping[str, Shape], reference: Mapping[str, Shape]
) -> tuple[Corrections, dict[str, str]]:
    """Convert `corrections` to corrections of parameters alone, and to a dict (the port's layer →
    the reference's layer).
    """
    sources: Corrections = {}
    layers: dict[str, str] = {}
    for name, source in corrections.items():
        inside = {path: path[len(name) + 1 :] for path in port if path.startswith(f"{name}.")}
        if name in port:
            for array in source.names:
                if array not in reference:
                    raise ValueError(
                        f"--map: {name}: the reference has no array {array!r}; "
                        f"{suggest_name(array, reference)}"
                    )
            sources[name] = source
            first = source.names[0] if source.names else ""
            if source == whole_array(first):
                layer = name.rpartition(".")[0]
                layers[layer] = first.rpartition(".")[0]
        elif inside and not source.parts:
            sources |= dict.fromkeys(inside, source)
        elif inside:
            other = source.parts[0].name
            if source != whole_array(other):
                raise ValueError(
                    f"--map: {name} is a layer and needs one layer; name one, or map each parameter"
                )
            layers[name] = other
            by_leaf = {}
            for candidate in reference:
                if candidate.startswith(f"{other}."):
                    leaf = candidate.removeprefix(f"{other}.")
                    by_leaf[leaf_name(leaf)] = candidate
            if not by_leaf:
                nearest = suggest_name(other, _layers(reference))
                raise ValueError(f"--map: {name}: the reference has no layer {other!r}; {nearest}")
            for parameter, leaf in inside.items():
                same = by_leaf.get(leaf_name(leaf))
                if same:
                    sources[parameter] = whole_array(same)
        else:
            nearest = suggest_name(name, [*port, *_layers(port)])
            raise ValueError(f"--map: {name!r} is not a parameter or a layer of the net; {nearest}")
    named = {own: layer for own, layer in layers.items() if own and layer}
    return sources, named


def _layers(names: Mapping[str, Shape]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
