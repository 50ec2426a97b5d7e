"""`find_net` finds a net among the arrays of a file, where training scripts put it.

Scripts save a net inside of other objects, in dicts with other entries, and beside its moving average, so that other
words stand before the names of a ResNet's parameters: `state_dict/module.encoder_q.conv1.weight`. In such names, "/"
separates the keys of dicts, and "." the parts of a parameter's name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from resnet_fn.config.hints import few
from resnet_fn.weights.names import is_optimizer_state, strip_extras

Shapes = Mapping[str, tuple[int, ...]]
# Words before a moving average. The teacher of DINO, in an entry of its own, is the student's average.
_AVERAGE = re.compile(r"(?<![a-z])(ema|swa|avg|averaged?|polyak)(?![a-z])|teacher[^/]*/")
# Words before a copy that follows the net while the net learns to represent images (MoCo, BYOL).
_FOLLOWER = re.compile(r"momentum|encoder_k|key_encoder|target")
_FIRST_BLOCK, _STEMS = "layer1.0.conv1.weight", ("conv1.weight", "conv1.0.weight")
# The same of nn.Sequential(*net.children()), where numbers stand for names.
_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4", "9": "fc"}
_NUMBERED_BLOCK, _NUMBERED_STEMS = "4.0.conv1.weight", ("0.weight", "0.0.weight")
_HEADS = ("fc", "classifier", "linear", "head")  # names of a last layer, in the net or beside it


class Net(NamedTuple):
    """The arrays of a net in a file."""

    names: dict[str, str]  # from names without what stands before them to the names in the file
    notes: tuple[str, ...] = ()  # what was read, renamed and left out
    averaged: bool = False  # whether these are the moving average of the weights
    fault: str = ""  # why no net was chosen; `names` are then those of all arrays


def find_net(shapes: Shapes) -> Net:
    """Find the net that a file contains. `shapes` are the shapes of the file's arrays by name.

    The moving average of weights is preferred to the weights. If there is no ResNet, the largest dict is returned.
    """
    nets = {prefix: _names_of(prefix, shapes) for prefix in _prefixes(shapes)}
    if not nets:
        return Net(_largest_dict(shapes))
    prefix = _choose(nets, shapes)
    if prefix is None:
        fault = f"contains {len(nets)} nets ({_quoted(nets)}), and does not say which one was trained"
        return Net({name: name for name in shapes}, fault=f"{fault}; save the state dict of one of them")
    group = prefix[: prefix.rfind("/") + 1]
    averaged = bool(_AVERAGE.search(prefix)) or f"{group}n_averaged" in shapes
    others = [other for other in nets if other != prefix]
    names, notes = nets[prefix], []
    if others:
        which = ", the average of the weights," if averaged else ""
        notes.append(f"{prefix!r}{which} is read; left out: {_quoted(others)}")
    elif prefix != group:
        notes.append(f"{prefix.removeprefix(group)!r} before all names is left out")
    if averaged and len(others) == 1:  # an average without BatchNorm's statistics
        lacking = {name: place for name, place in nets[others[0]].items() if name not in names}
        names = {**lacking, **names}
        if missing := strip_extras(lacking):
            notes.append(f"the average has no {few(missing)}, which are read from {others[0]!r}")
    if f"{prefix}{_NUMBERED_BLOCK}" in shapes:
        notes.append("0, 1, 4, 5 … are read as conv1, bn1, layer1, layer2 …, the order of a net's children")
    if head := _head(prefix, group, names, shapes):
        names = {name: place for name, place in names.items() if not place.startswith(f"{head}.")}
        leaves = (leaf for leaf in ("weight", "bias") if f"{head}.{leaf}" in shapes)
        names |= {f"fc.{leaf}": f"{head}.{leaf}" for leaf in leaves}
        notes.append(f"{head.removeprefix(group)} is read as the last layer fc")
    used = {*names.values(), *(place for other in others for place in nets[other].values())}
    beside = {name.removeprefix(group) for name in shapes if name.startswith(group) and name not in used}
    if left_out := strip_extras(name for name in beside if "/" not in name):
        notes.append(f"left out: {few(sorted(left_out))}")
    return Net(names, tuple(notes), averaged)


def _prefixes(shapes: Shapes) -> list[str]:
    """Return what stands before the names of each ResNet."""
    kinds = ((_FIRST_BLOCK, _STEMS), (_NUMBERED_BLOCK, _NUMBERED_STEMS))
    return [
        prefix
        for first, stems in kinds
        for prefix in (name.removesuffix(first) for name in shapes if name.endswith(first))
        if prefix[-1:] in ("", ".", "/")
        and any(f"{prefix}{stem}" in shapes for stem in stems)
        and not is_optimizer_state(prefix)
    ]


def _names_of(prefix: str, shapes: Shapes) -> dict[str, str]:
    """Return the names of a ResNet's arrays, from those without `prefix` to those in the file."""
    children = _CHILDREN if f"{prefix}{_NUMBERED_BLOCK}" in shapes else {}
    inner = [other for other in _prefixes(shapes) if other != prefix and other.startswith(prefix)]
    names = {}
    for place in shapes:
        name = place.removeprefix(prefix)
        if place.startswith(prefix) and "/" not in name and not place.startswith(tuple(inner)):
            child, dot, rest = name.partition(".")
            rest = re.sub(r"^(\d+)\.shortcut\.", r"\1.downsample.", rest)
            names[f"{children.get(child, child)}{dot}{rest}"] = place
    return names


def _choose(nets: Mapping[str, dict[str, str]], shapes: Shapes) -> str | None:
    """Return the name of the net to read, or None if several could be meant."""
    averages = [prefix for prefix in nets if _AVERAGE.search(prefix)]
    trained = [prefix for prefix in nets if prefix not in averages and not _FOLLOWER.search(prefix)]
    chosen = averages or trained or list(nets)
    layers = [
        {name: shapes[place] for name, place in names.items() if re.match(r"(conv1|layer\d+)\..*weight$", name)}
        for names in nets.values()
    ]
    return chosen[0] if len(chosen) == 1 and all(other == layers[0] for other in layers) else None


def _head(prefix: str, group: str, names: Mapping[str, str], shapes: Shapes) -> str:
    """Return the name in the file of a last layer that is a single Linear but is not named as in our nets, else ""."""
    convolutions = [name for name in names if re.fullmatch(r"layer\d+\.\d+\.conv\d\.weight", name)]
    features = shapes[names[max(convolutions, key=_numbers)]][0]
    is_mindcv = not any(name.endswith(".running_mean") for name in names)
    if "fc.weight" in names or ("classifier.weight" in names and is_mindcv):
        return ""
    for place in (f"{start}{head}" for start in dict.fromkeys((prefix, group)) for head in _HEADS):
        below = [name.removeprefix(f"{place}.") for name in shapes if name.startswith(f"{place}.")]
        layers = {name.rpartition("weight")[0] for name in below if shapes[f"{place}.{name}"][1:] == (features,)}
        layer = layers.pop() if len(layers) == 1 else ""
        if {f"{layer}weight"} <= set(strip_extras(below)) <= {f"{layer}weight", f"{layer}bias"}:
            return f"{place}.{layer}".removesuffix(".")
    return ""


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _largest_dict(shapes: Shapes) -> dict[str, str]:
    """Return the arrays of the entry that has most of them, such as a "state_dict" beside an optimizer's state."""
    groups: dict[str, dict[str, str]] = {}
    for place in shapes:
        group, _, name = place.rpartition("/")
        groups.setdefault(group, {})[name] = place
    return max(groups.values(), key=len, default={})


def _quoted(names: Iterable[str]) -> str:
    return few([f"{name!r}" for name in names])
