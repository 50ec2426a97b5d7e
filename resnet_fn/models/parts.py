"""This module selects parts of a net by name, and freezes them."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import accumulate

from mindspore import nn

from resnet_fn.config.hints import suggest_name

STEM, HEAD = "stem", "fc"


def group_of(name: str) -> str:
    """Return the part of the net that a parameter belongs to: "stem", "layer1", …, or "fc"."""
    first = name.split(".", 1)[0]
    return first if first.startswith("layer") or first == HEAD else STEM


def layer_numbers(paths: Iterable[str]) -> dict[str, int]:
    """Return a layer number for each parameter.

    Numbers grow from the stem to `fc`, by one for each block.
    """
    layers: dict[str, tuple[int, ...]] = {
        path: (2 if group_of(path) == HEAD else 0,) for path in paths
    }
    for path in layers:
        if match := re.match(r"layer(\d+)\.(\d+)\.", path):
            layers[path] = 1, int(match[1]), int(match[2])
    order = {layer: number for number, layer in enumerate(sorted(set(layers.values())))}
    return {path: order[layer] for path, layer in layers.items()}


def freeze(net: nn.Cell, frozen: str = "", trained: str = "") -> None:
    """Freeze the parts `frozen` of a net, or all parts except `trained`.

    `frozen` and `trained` are comma-separated names, as in `select`. A BatchNorm whose parameters
    are all frozen uses its moving statistics in training, and does not change them.
    """
    if not frozen and not trained:
        return
    parameters = {
        path: parameter for path, parameter in net.parameters_and_names() if parameter.requires_grad
    }
    to_freeze = select(parameters, frozen, "freeze") if frozen else set(parameters)
    if trained:
        to_freeze -= select(parameters, trained, "train_only")
    if to_freeze == set(parameters):
        raise ValueError(f"freeze: {frozen!r} freezes all parts of the net; leave out {HEAD}")
    for path in to_freeze:
        parameters[path].requires_grad = False
    for _, cell in net.cells_and_names():
        if hasattr(cell, "moving_mean") and not cell.trainable_params():
            cell.use_batch_statistics = False


def select(paths: Iterable[str], names: str, setting: str) -> set[str]:
    """Return the parameter names in `paths` that match one of the comma-separated `names`.

    A name is a part ("stem"), a module ("layer1"), a parameter ("layer1.0.conv1.weight") or a
    pattern ("*.bn?").
    """
    names_of = {}  # names of each parameter: its part, its modules and its own name
    for path in paths:
        names_of[path] = [group_of(path), *accumulate(path.split("."), "{}.{}".format)]
    selected: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        matching = {
            path
            for path, known in names_of.items()
            if any(fnmatchcase(word, name) for word in known)
        }
        if not matching:
            all_words = dict.fromkeys(word for known in names_of.values() for word in known)
            groups = dict.fromkeys(map(group_of, names_of))
            raise ValueError(
                f"{setting}: {name!r} is not a part of the net; "
                f"{suggest_name(name, all_words, groups)}"
            )
        selected |= matching
    return selected
