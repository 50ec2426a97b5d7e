"""`find_net` finds a net among the arrays of a file, where training scripts put it.

Scripts save a net inside of other objects, in dicts with other entries, and beside its moving
average. So other words stand before the names of a ResNet's parameters, as in
`state_dict/module.encoder_q.conv1.weight`. In such names, "/" separates the keys of dicts, and "."
the parts of a parameter's name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from resnet_fn.config.hints import few
from resnet_fn.weights.names import is_optimizer_state, strip_extras

Shapes = Mapping[str, tuple[int, ...]]
Names = dict[str, str]  # from names without what stands before them to names in the file
# Words before a moving average. DINO's teacher, in an entry of its own, is the student's average.
_AVERAGE = re.compile(r"(?i)(?<![a-z])(ema|swa|avg|averaged?|polyak)(?![a-z])|teacher[^/]*/")
# Words before nets that learn together with another one: of BYOL, and of MoCo and others.
_USED, _NOT_USED = re.compile("online"), re.compile("momentum|encoder_k|key_encoder")
_FIRST_BLOCK, _STEMS = "layer1.0.conv1.weight", ("conv1.weight", "conv1.0.weight")
# The same of nn.Sequential(*net.children()), where numbers stand for names.
_CHILDREN = {"0": "conv1", "1": "bn1", "9": "fc"}
_CHILDREN |= {str(number): f"layer{number - 3}" for number in (4, 5, 6, 7)}
_NUMBERED_BLOCK, _NUMBERED_STEMS = "4.0.conv1.weight", ("0.weight", "0.0.weight")
_HEADS = ("fc", "classifier", "linear", "head")  # names of a last layer, in the net or beside it


class Net(NamedTuple):
    """The arrays of a net in a file."""

    names: Names
    notes: tuple[str, ...] = ()  # what was read, renamed and left out
    averaged: bool = False  # whether these are the moving average of the weights
    fault: str = ""  # why no net was chosen; `names` are then those of all arrays


def find_net(shapes: Shapes) -> Net:
    """Find the net that a file contains. `shapes` are the shapes of the file's arrays by name.

    The moving average of weights is preferred to the weights. If there is no ResNet, the largest
    dict is returned.
    """
    nets = {prefix: _names_of(prefix, shapes) for prefix in _prefixes(shapes)}
    if not nets:
        return Net(_largest_dict(shapes))
    prefix = _choose(nets, shapes)
    if prefix is None:
        unknown = "and does not say which one was trained; save the state dict of one of them"
        fault = f"contains {len(nets)} nets ({_quoted(nets)}), {unknown}"
        return Net({name: name for name in shapes}, fault=fault)
    group = prefix[: prefix.rfind("/") + 1]
    averaged = bool(_AVERAGE.search(prefix)) or f"{group}n_averaged" in shapes
    others = {other: names for other, names in nets.items() if other != prefix}
    names, notes = nets[prefix], [_describe_choice(prefix, group, others, averaged)]
    if averaged and len(others) == 1:
        names, note = _completed(names, *others.popitem())
        notes.append(note)
    if f"{prefix}{_NUMBERED_BLOCK}" in shapes:
        order = "the order of a net's children"
        notes.append(f"0, 1, 4, 5 … are read as conv1, bn1, layer1, layer2 …, {order}")
    if head := _head(prefix, group, names, shapes):
        names = _with_head(names, head, shapes)
        notes.append(f"{head.removeprefix(group)} is read as the last layer fc")
    used = {place for places in (names, *nets.values()) for place in places.values()}
    notes.append(_describe_rest(group, used, shapes))
    return Net(names, tuple(filter(None, notes)), averaged)


def _describe_choice(prefix: str, group: str, others: Iterable[str], averaged: bool) -> str:
    """Return a note about what stands before the names, and about nets that are not read."""
    if others:
        average = ", the average of the weights," if averaged else ""
        return f"{prefix!r}{average} is read; left out: {_quoted(others)}"
    before = prefix.removeprefix(group)
    return f"stripped from all names: {before!r}" if before else ""


def _completed(names: Names, prefix: str, weights: Names) -> tuple[Names, str]:
    """Return an average's names and those that only the weights have, and a note.

    Averages may lack BatchNorm's statistics.
    """
    lacking = {name: place for name, place in weights.items() if name not in names}
    missing = strip_extras(lacking)
    note = f"the average has no {few(missing)}, which are read from {prefix!r}" if missing else ""
    return {**lacking, **names}, note


def _with_head(names: Names, head: str, shapes: Shapes) -> Names:
    """Return `names` with the last layer `head`, a name in the file, as `fc`."""
    body = {name: place for name, place in names.items() if not place.startswith(f"{head}.")}
    leaves = (leaf for leaf in ("weight", "bias") if f"{head}.{leaf}" in shapes)
    return {**body, **{f"fc.{leaf}": f"{head}.{leaf}" for leaf in leaves}}


def _describe_rest(group: str, used: set[str], shapes: Shapes) -> str:
    """Return a note about the arrays beside the nets."""
    beside = (name for name in shapes if name.startswith(group) and name not in used)
    names = [name.removeprefix(group) for name in beside]
    left_out = strip_extras(name for name in names if "/" not in name)
    return f"left out: {few(sorted(left_out))}" if left_out else ""


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


def _names_of(prefix: str, shapes: Shapes) -> Names:
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
    used = [prefix for prefix in nets if _USED.search(prefix)]
    chosen = averages or used or [prefix for prefix in nets if not _NOT_USED.search(prefix)]
    layers = [_layers(names, shapes) for names in nets.values()]
    return chosen[0] if len(chosen) == 1 and all(other == layers[0] for other in layers) else None


def _layers(names: Names, shapes: Shapes) -> Shapes:
    """Return the shapes of a net's weights before the last layer, which one design determines."""
    is_weight = re.compile(r"(conv1|layer\d+)\..*weight")
    return {name: shapes[place] for name, place in names.items() if is_weight.fullmatch(name)}


def _head(prefix: str, group: str, names: Mapping[str, str], shapes: Shapes) -> str:
    """Return the name in the file of a last layer that is a single Linear, but not named `fc`.

    Returns "" if there is none.
    """
    convolutions = [name for name in names if re.fullmatch(r"layer\d+\.\d+\.conv\d\.weight", name)]
    features = shapes[names[max(convolutions, key=_numbers)]][0]
    is_mindcv = not any(name.endswith(".running_mean") for name in names)
    if "fc.weight" in names or ("classifier.weight" in names and is_mindcv):
        return ""
    for place in (f"{start}{head}" for start in dict.fromkeys((prefix, group)) for head in _HEADS):
        below = [name.removeprefix(f"{place}.") for name in shapes if name.startswith(f"{place}.")]
        weights = [name for name in below if shapes[f"{place}.{name}"][1:] == (features,)]
        layer = weights[0].removesuffix("weight") if len(weights) == 1 else ""
        is_alone = set(strip_extras(below)) - {f"{layer}bias"} == {f"{layer}weight"}
        if is_alone and re.fullmatch(r"(\d+\.|fc\.)?", layer):
            return f"{place}.{layer}".removesuffix(".")
    return ""


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _largest_dict(shapes: Shapes) -> Names:
    """Return the arrays of the entry that has most, such as "state_dict" beside "optimizer"."""
    groups: dict[str, Names] = {}
    for place in shapes:
        group, _, name = place.rpartition("/")
        groups.setdefault(group, {})[name] = place
    return max(groups.values(), key=len, default={})


def _quoted(names: Iterable[str]) -> str:
    return few([f"{name!r}" for name in names])
