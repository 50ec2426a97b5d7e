"""A net's parts have names; settings name the parts that are frozen or trained."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from mindspore import nn

from resnet_fn.config.hints import closest

STEM, HEAD = "stem", "fc"


def group_of(name: str) -> str:
    """Return the group of layers that a parameter belongs to: "stem", "layer1", …, "fc"."""
    first = name.split(".", 1)[0]
    return first if first.startswith("layer") or first == HEAD else STEM


def layer_numbers(paths: Iterable[str]) -> dict[str, int]:
    """Return {parameter: number of its layer}; the stem has number 0, then come the blocks, then the last layer."""
    layers: dict[str, tuple[int, ...]] = {path: (2 if group_of(path) == HEAD else 0,) for path in paths}
    for path in layers:
        if match := re.match(r"layer(\d+)\.(\d+)\.", path):
            layers[path] = 1, int(match[1]), int(match[2])
    order = {layer: number for number, layer in enumerate(sorted(set(layers.values())))}
    return {path: order[layer] for path, layer in layers.items()}


def freeze(net: nn.Cell, frozen: str = "", trained: str = "") -> None:
    """Freeze the parts `frozen`, or all parts except `trained`; both are comma-separated names, see `select`.

    A BatchNorm whose parameters are all frozen uses its moving statistics in training, too, and does not change them.
    A ValueError for an unknown name has the nearest names; another reports that nothing is left to train.
    """
    if not frozen and not trained:
        return
    parameters = {path: parameter for path, parameter in net.parameters_and_names() if parameter.requires_grad}
    to_freeze = select(parameters, frozen, "freeze") if frozen else set(parameters)
    if trained:
        to_freeze -= select(parameters, trained, "train_only")
    if to_freeze == set(parameters):
        raise ValueError(f"freeze: {frozen!r} leaves nothing to train; leave out {HEAD}")
    for path in to_freeze:
        parameters[path].requires_grad = False
    for _, cell in net.cells_and_names():
        if hasattr(cell, "moving_mean") and not cell.trainable_params():
            cell.use_batch_statistics = False


def select(paths: Iterable[str], names: str, setting: str) -> set[str]:
    """Return the parameters among `paths` that match names.

    Names are comma-separated: "stem", a module or parameter ("layer1", "layer1.0.conv1"), or a pattern of their names
    ("*.bn?", "layer[12]"). A ValueError names the `setting` if no parameter matches a name.
    """
    names_of = {}  # names that match each parameter: its group's, its modules', its own
    for path in paths:
        parts = path.split(".")
        names_of[path] = [group_of(path), *(".".join(parts[:count]) for count in range(1, len(parts) + 1))]
    selected: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        matching = {path for path, words in names_of.items() if any(fnmatchcase(word, name) for word in words)}
        if not matching:
            all_words = dict.fromkeys(word for words in names_of.values() for word in words)
            groups = dict.fromkeys(map(group_of, names_of))
            raise ValueError(f"{setting}: {name!r} is no part of the net; {closest(name, all_words, groups)}")
        selected |= matching
    return selected
