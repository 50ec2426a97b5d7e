"""What --map says: a JSON that corrects which parameter is which.

    {
      "head.weight": "classifier.weight",
      "body": "inner",
      "attn.q.weight": {"from": "attn.in_proj_weight", "rows": [0, 64]},
      "embed.weight": {"from": "tokens.weight", "transpose": [1, 0]},
      "attn.qkv.weight": {"from": ["attn.q.weight", "attn.k.weight", {"name": "attn.v.weight"}], "join": 0},
      "conv.weight": {"from": "conv.weight", "shape": [8, 4, 1, 3]}
    }

Left stands the MindSpore net's parameter (or layer, then all that it holds), right the reference's. `transpose` is done
first, then `rows` [first, behind the last) along `axis` (default 0) are cut out, then parts are joined along `join`
(default 0), then the result is reshaped to `shape`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.hints import closest, near_path
from resnet_fn.parity.matching.names import leaf_name
from resnet_fn.parity.matching.source import Part, Shape, Source, plain

Corrections = dict[str, Source]

_PART = ("transpose", "rows", "axis")


def read_map(path: str) -> Corrections:
    """Read a file of corrections.

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
    first = (rows[0], rows[1]) if rows else None
    return Part(given["name"], transpose, first, None, _whole(name, "axis", [given.get("axis", 0)], 1)[0])


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
            _check_names(name, source, theirs)
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


def _check_names(name: str, source: Source, theirs: Mapping[str, Shape]) -> None:
    for one in source.names:
        if one not in theirs:
            raise ValueError(f"--map: {name}: the reference has no {one!r}; {closest(one, theirs)}")


def _layers(names: Mapping[str, Shape]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
