"""`find_net` finds a net among the arrays of a file, where training scripts put it.

Scripts save a net inside of other objects, in dicts with other entries, and beside its moving
average. So other words stand before the names of a ResNet's parameters, as in
`state_dict/module.encoder_q.conv1.weight`. In such names, "/" separates the keys of dicts, and "."
the parts of a parameter's name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from resnet_fn.config.wording import first_few
from resnet_fn.weights.names import is_optimizer_state, strip_extras

Shapes = Mapping[str, tuple[int, ...]]
Names = dict[str, str]  # from names without what stands before them to names in the file
_AVERAGE = re.compile(r"(?i)(?<![a-z])(ema|swa|avg|averaged?|polyak)(?![a-z])")
_DINO = "dino_loss"  # an entry of DINO's files, in which the teacher is the student's average
# Words before nets that learn together with another one: of BYOL, and of MoCo and others.
_USED = re.compile("online")
_NOT_USED = re.compile("momentum|encoder_k|key_encoder")
# What stands before a net, and the name of its first layer. In nn.Sequential(*net.children()),
# numbers stand for names.
_FIRST_BLOCK = re.compile(r"(|.*[./])(layer1|4)\.0\.conv1\.weight")
_CHILDREN = {
    "0": "conv1",
    "1": "bn1",
    "4": "layer1",
    "5": "layer2",
    "6": "layer3",
    "7": "layer4",
    "9": "fc",
}
_NUMBERED_BLOCK = "4.0.conv1.weight"
_SHORTCUT = re.compile(r"^(layer\d+\.\d+)\.shortcut\.")  # another name of `downsample`
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
    nets = _nets(shapes)
    if not nets:
        return _largest_dict(shapes)
    prefix = _choose(nets, shapes)
    if prefix is None:
        every = {name: name for name in shapes}
        return Net(
            every,
            fault=f"contains {len(nets)} nets ({_quoted(nets)}), and does not say which one was "
            "trained; save the state dict of one of them",
        )
    group = _group(prefix)
    averaged = _is_average(prefix, shapes)
    names = nets[prefix]
    others = [name for name in nets if name != prefix]
    notes = [_describe_choice(prefix, group, others, averaged)]
    if averaged and len(others) == 1:
        names, note = _completed(names, others[0], nets[others[0]])
        notes.append(note)
    if f"{prefix}{_NUMBERED_BLOCK}" in shapes:
        notes.append(
            "0, 1, 4, 5 … are read as conv1, bn1, layer1, layer2 …, the order of a net's children"
        )
    head = _head(prefix, group, names, shapes)
    if head:
        names = _with_head(names, head, shapes)
        notes.append(f"{head.removeprefix(group)} is read as the last layer fc")
    notes.append(_describe_rest(group, [names, *nets.values()], shapes))
    return Net(names, tuple(note for note in notes if note), averaged)


def _describe_choice(prefix: str, group: str, others: Sequence[str], averaged: bool) -> str:
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
    lacking = {name: path for name, path in weights.items() if name not in names}
    missing = strip_extras(lacking)
    if not missing:
        return names, ""
    note = f"the average has no {first_few(missing)}, which are read from {prefix!r}"
    return {**lacking, **names}, note


def _with_head(names: Names, head: str, shapes: Shapes) -> Names:
    """Return `names` with the last layer `head`, a name in the file, as `fc`."""
    renamed = {name: path for name, path in names.items() if not path.startswith(f"{head}.")}
    for leaf in ("weight", "bias"):
        if f"{head}.{leaf}" in shapes:
            renamed[f"fc.{leaf}"] = f"{head}.{leaf}"
    return renamed


def _describe_rest(group: str, nets: Iterable[Names], shapes: Shapes) -> str:
    """Return a note about the arrays beside the nets, in the same dict as the net that is read."""
    used = {path for names in nets for path in names.values()}
    beside = [path for path in shapes if _group(path) == group]
    not_read = [path.removeprefix(group) for path in beside if path not in used]
    left_out = sorted(strip_extras(not_read))
    return f"left out: {first_few(left_out)}" if left_out else ""


def _group(path: str) -> str:
    """Return the keys of the dict that an array is in, such as "state_dict/", or ""."""
    return path[: path.rfind("/") + 1]


def _nets(shapes: Shapes) -> dict[str, Names]:
    """Return the names of each ResNet, by what stands before them."""
    nets: dict[str, Names] = {}
    for match in filter(None, map(_FIRST_BLOCK.fullmatch, shapes)):
        prefix, layer = match.groups()
        stem = f"{prefix}{'conv1' if layer == 'layer1' else '0'}"
        has_stem = f"{stem}.weight" in shapes or f"{stem}.0.weight" in shapes
        if has_stem and not is_optimizer_state(prefix):
            nets[prefix] = {}
    longest_first = sorted(nets, key=len, reverse=True)
    for path in shapes:
        for prefix in longest_first:
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                if "/" not in name:
                    is_numbered = f"{prefix}{_NUMBERED_BLOCK}" in shapes
                    nets[prefix][_usual_name(name, is_numbered)] = path
                break
    return nets


def _usual_name(name: str, is_numbered: bool) -> str:
    """Return, for example, "layer1.0.conv1.weight" for "4.0.conv1.weight"."""
    if is_numbered:
        child, dot, rest = name.partition(".")
        name = f"{_CHILDREN.get(child, child)}{dot}{rest}"
    return _SHORTCUT.sub(r"\1.downsample.", name)


def _choose(nets: Mapping[str, Names], shapes: Shapes) -> str | None:
    """Return the name of the net to read, or None if several could be meant."""
    averages = [prefix for prefix in nets if _is_average(prefix, shapes)]
    used = [prefix for prefix in nets if _USED.search(prefix)]
    others = [prefix for prefix in nets if not _NOT_USED.search(prefix)]
    chosen = averages or used or others or list(nets)
    layers = [_layers(names, shapes) for names in nets.values()]
    are_alike = all(other == layers[0] for other in layers)
    return chosen[0] if len(chosen) == 1 and are_alike else None


def _is_average(prefix: str, shapes: Shapes) -> bool:
    """Return whether a net is the moving average of weights, as words before it or entries say."""
    # n_averaged: as in AveragedModel
    if _AVERAGE.search(prefix) or f"{_group(prefix)}n_averaged" in shapes:
        return True
    return prefix.startswith("teacher") and any(name.startswith(_DINO) for name in shapes)


def _layers(names: Names, shapes: Shapes) -> Shapes:
    """Return the shapes of a net's weights before the last layer, which one design determines."""
    is_layer = re.compile(r"(conv1|layer\d+)\..*weight").fullmatch
    return {name: shapes[path] for name, path in names.items() if is_layer(name)}


def _head(prefix: str, group: str, names: Names, shapes: Shapes) -> str:
    """Return the name in the file of a last layer that is a single Linear, but not named `fc`.

    Returns "" if there is none.
    """
    is_mindcv = not any(name.endswith(".running_mean") for name in names)
    if "fc.weight" in names or ("classifier.weight" in names and is_mindcv):
        return ""
    features = _features(names, shapes)
    for start in (prefix, group):
        for head in _HEADS:
            layer = _single_linear(f"{start}{head}.", features, shapes)
            if layer:
                return layer
    return ""


def _features(names: Names, shapes: Shapes) -> int:
    """Return the number of channels after the last convolution."""
    convolutions: list[tuple[int, ...]] = [(0, 0, 0, 0)]  # stage, block, number and channels
    for name, path in names.items():
        match = re.fullmatch(r"layer(\d+)\.(\d+)\.conv(\d)\.weight", name)
        if match and shapes[path]:
            convolutions.append((*map(int, match.groups()), shapes[path][0]))
    return max(convolutions)[-1]


def _single_linear(start: str, features: int, shapes: Shapes) -> str:
    """Return the name of the only layer below `start` if it is a Linear of `features`, else ""."""
    below = [name.removeprefix(start) for name in shapes if name.startswith(start)]
    weights = [name for name in below if shapes[f"{start}{name}"][1:] == (features,)]
    if len(weights) != 1:
        return ""
    layer = weights[0].removesuffix("weight")
    others = set(strip_extras(below)) - {f"{layer}weight", f"{layer}bias"}
    is_direct = re.fullmatch(r"(\d+\.|fc\.)?", layer)
    return f"{start}{layer}".removesuffix(".") if is_direct and not others else ""


def _largest_dict(shapes: Shapes) -> Net:
    """Return the arrays of the entry that has most, such as "state_dict" beside "optimizer".

    An average with at least half as many arrays is preferred.
    """
    groups: dict[str, Names] = {}
    for path in shapes:
        group = _group(path)
        groups.setdefault(group, {})[path.removeprefix(group)] = path
    groups = groups or {"": {}}
    most = max(map(len, groups.values()))
    large = [group for group, names in groups.items() if 2 * len(names) >= most]
    averages = [group for group in large if _is_average(group, shapes)]
    group = max(averages or large, key=lambda group: len(groups[group]))
    names = groups[group]
    before = ""
    for wrapper in ("_orig_mod.", "module."):  # of torch.compile and DataParallel
        if all(name.startswith(wrapper) for name in names):
            names = {name.removeprefix(wrapper): path for name, path in names.items()}
            before += wrapper
    others = [name for name in large if name != group]
    note = _describe_choice(f"{group}{before}", group, others, bool(averages))
    return Net(names, (note,) if note else (), bool(averages))


def _quoted(names: Iterable[str]) -> str:
    return first_few([*map(repr, names)])
