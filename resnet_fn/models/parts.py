"""The parts of a net by name, and which of them are trained."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from mindspore import nn

from resnet_fn.config.hints import closest

STEM, HEAD = "stem", "fc"


def group_of(name: str) -> str:
    """The group of layers that a parameter belongs to: "stem", "layer1", …, "fc"."""
    first = name.split(".", 1)[0]
    return first if first.startswith("layer") or first == HEAD else STEM


def freeze(net: nn.Cell, frozen: str = "", trained: str = "") -> None:
    """Take the gradient from a net's parameters: those of `frozen`, or all but those of `trained`.

    A BatchNorm all of whose parameters are frozen normalises by its moving statistics in training too, and keeps them.
    What lies before the first trained parameter costs no backward pass.

    Args:
        frozen, trained: names with commas, see `select`; "": no such wish.

    Raises:
        ValueError: a name that means nothing, with the nearest ones; or nothing is left to train.
    """
    if not frozen and not trained:
        return
    parameters = {path: parameter for path, parameter in net.parameters_and_names() if parameter.requires_grad}
    still = select(parameters, frozen, "freeze") if frozen else set(parameters)
    if trained:
        still -= select(parameters, trained, "train_only")
    if still == set(parameters):
        raise ValueError(f"freeze: {frozen!r} leaves nothing to train; leave out {HEAD}")
    for path in still:
        parameters[path].requires_grad = False
    for _, cell in net.cells_and_names():
        if hasattr(cell, "moving_mean") and not cell.trainable_params():
            cell.use_batch_statistics = False


def select(paths: Iterable[str], names: str, setting: str) -> set[str]:
    """The parameters that names mean.

    Args:
        paths: of all parameters: "layer1.0.conv1.weight".
        names: with commas: "stem", a module or parameter ("layer1", "layer1.0.conv1"), or a pattern of their names
            ("*.bn?", "layer[12]").
        setting: to be named in errors.

    Raises:
        ValueError: a name that means no parameter, with the nearest ones.
    """
    known = {path: _names_of(path) for path in paths}
    found: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        meant = {path for path, own in known.items() if any(fnmatchcase(word, name) for word in own)}
        if not meant:
            words = dict.fromkeys(word for own in known.values() for word in own)
            groups = dict.fromkeys(map(group_of, known))
            raise ValueError(f"{setting}: {name!r} is no part of the net; {closest(name, words, groups)}")
        found |= meant
    return found


def _names_of(path: str) -> list[str]:
    """A parameter's own name, those of the modules around it, and its group."""
    parts = path.split(".")
    return [group_of(path), *(".".join(parts[:count]) for count in range(1, len(parts) + 1))]
