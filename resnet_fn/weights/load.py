"""Weights from elsewhere into our nets, and ours into other projects' files: strict, or not at all."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.checkpoint.folder import MANIFEST, Checkpoint, load_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.hints import closest
from resnet_fn.models import create_model
from resnet_fn.models.attention import GatherExcite
from resnet_fn.update.ema import averages_of
from resnet_fn.weights.files import Arrays, read_arrays, write_arrays
from resnet_fn.weights.names import STYLES, differences, is_basic, recognise_style, rename, to_ours
from resnet_fn.weights.recognise import WeightsError, ambiguity, recognise_model, same_parameters

HEAD = ("fc.weight", "fc.bias")


@dataclasses.dataclass(frozen=True)
class Source:
    """A weight file, read.

    Attributes:
        path: the file, or the checkpoint folder that was taken of a run folder.
        arrays: its arrays under our names.
        style: the style that the names were in; "own" where it is none of STYLES (`read_any_weights` only).
        warning: what that style hides; "" or one line.
        useless: whether that is so much that the weights belong to another function than our net.
        model: the model's name where the source knows it: our checkpoints do; "" elsewhere.
        averaged: whether these are the moving average of the weights.
        update: updates that a checkpoint of ours has seen; 0 elsewhere.
    """

    path: Path
    arrays: Arrays
    style: str
    warning: str
    useless: bool
    model: str
    averaged: bool
    update: int


def read_weights(file: str | Path) -> Source:
    """Read weights in any style and format: `.pth`, `.safetensors`, `.ckpt`, or a checkpoint or run folder of ours.

    Of a run folder, the newest checkpoint that is intact; where the weights have a moving average, that is read.

    Optimizer state, step counts and BatchNorm counters are left out.

    Raises:
        ValueError: no such file, unknown names, or weights of a net that computes something else than ours.
    """
    source = read_any_weights(file)
    if source.useless:
        raise WeightsError(f"{source.path}: {source.warning}")
    return source


def read_any_weights(file: str | Path) -> Source:
    """As `read_weights`, but to look at only: nothing is refused for what it computes or how its names are.

    Where the names are of no known style, `style` is "own" and the arrays are all there, under the file's own names.
    """
    path, model, averaged, update = Path(file), "", False, 0
    if path.is_dir():
        checkpoint = newest_checkpoint(path)
        path, update = checkpoint.path, checkpoint.state.get("update", 0)
        model = checkpoint.state.get("recipe", {}).get("model", "")
        averages = averages_of(checkpoint.training)
        arrays, averaged = {**checkpoint.weights, **averages}, bool(averages)
    else:
        arrays = read_arrays(path)
    try:
        style = recognise_style(arrays)
    except ValueError as error:
        return Source(path, arrays, "own", str(error), True, model, averaged, update)
    ours = {new: arrays[old] for old, new in to_ours(arrays, style).items()}
    warning, useless = differences(style, ours, _stem_kernel(ours))
    return Source(path, ours, style, warning, useless, model, averaged, update)


def _stem_kernel(arrays: Mapping[str, np.ndarray]) -> int:
    if "conv1.weight" not in arrays:
        return 3  # the D stem's three, under other names
    shape = arrays["conv1.weight"].shape
    return shape[2] if len(shape) == 4 else 7  # a wrong shape is refused later


def newest_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint folder, under whatever name, or a run folder's newest checkpoint that is intact.

    Raises:
        ValueError: it is neither, or nothing in it is intact.
    """
    if (path / MANIFEST).exists():
        return load_checkpoint(path)
    run = RunFolder(path)
    if not run.updates():
        raise WeightsError(f"{path}: is no checkpoint folder and no run folder; give a weight file or one of them")
    return run.newest()


def load_weights(net: nn.Cell, file: str | Path, reset_head: bool = False) -> None:
    """Put a file's weights and BatchNorm statistics into a net of ours, by exact name and shape.

    Assigned with `ops.assign`, which compiled functions see. A difference between the file's net and ours that
    equal names hide is printed to stderr as a warning, or refused.

    Args:
        net: from `create_model`.
        file: see `read_weights`.
        reset_head: keep the net's own last layer (`fc`), for another number of classes. It is the only way to
            leave anything out.

    Raises:
        WeightsError: lists what is missing, unexpected or of another shape. Nothing has been assigned then.
    """
    source = read_weights(file)
    parameters = {parameter.name: parameter for parameter in net.get_parameters()}
    arrays = dict(source.arrays)
    if reset_head:
        parameters = {name: parameter for name, parameter in parameters.items() if name not in HEAD}
        arrays = {name: array for name, array in arrays.items() if name not in HEAD}
    check_fit({name: parameter.shape for name, parameter in parameters.items()}, arrays, str(file))
    for warning in (source.warning, _other_function(net, source.model)):
        if warning:
            print(f"warning: {file}: {warning}", file=sys.stderr, flush=True)
    for name, parameter in parameters.items():
        _assign(parameter, arrays[name])


def _assign(parameter: Parameter, array: np.ndarray) -> None:
    ops.assign(parameter, Tensor(np.array(array)).astype(parameter.dtype))


def _other_function(net: nn.Cell, model: str) -> str:
    """What to warn of where a net's parameters fit two models: the file is the other's, or does not say whose it is."""
    minus, plain = "genet50_minus", same_parameters("genet50_minus")[0]
    gated = any(isinstance(cell, GatherExcite) and cell.gather is None for _, cell in net.cells_and_names())
    if gated and model != minus:
        known = f"are {model}'s" if model else f"may be {plain}'s"
        return f"these weights {known}, which has the parameters of {minus} but no gates; here they get gates"
    if not gated and model == minus:
        return f"these weights are {minus}'s, which has the parameters of {plain} and gates; here they get none"
    return ""


def check_fit(wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], file: str) -> None:
    """Refuse arrays that are not exactly the wanted names and shapes.

    Raises:
        WeightsError: lists every name that is missing, unexpected or of another shape.
    """
    shapes = [
        f"{name} {tuple(arrays[name].shape)} instead of {tuple(shape)}"
        for name, shape in wanted.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(shape)
    ]
    faults = (
        ("missing", [name for name in wanted if name not in arrays]),
        ("unexpected", [name for name in arrays if name not in wanted]),
        ("of another shape", shapes),
    )
    text = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in faults if names)
    if not text:
        return
    only_head = all(any(head in name for head in HEAD) for _, names in faults for name in names)
    fix = "--reset-head keeps the net's own" if only_head else "give the model that they belong to"
    raise WeightsError(f"{file}: does not fit the net ({text}); {fix}")


def convert_weights(source: str | Path, target: str | Path, to: str = "ours", model: str = "") -> dict[str, Any]:
    """Read weights in any style and write them in another; values keep every bit.

    The net is recognised from names and shapes, built, and compared with: nothing may be missing or unexpected.

    Args:
        source: see `read_weights`.
        target: a file ending in `.safetensors`, `.ckpt`, `.pth` or `.pt`.
        to: the names to write: "ours", "torchvision" (and timm), "mindcv" or "official".
        model: the model's name; "" recognises it.

    Returns:
        {"model": name, "from": style, "to": style, "tensors": count, "warnings": texts}

    Raises:
        ValueError: what does not fit, with every name; or the target's net would compute something else.
    """
    if to not in STYLES:
        raise ValueError(f"to: {to!r} is unknown; {closest(to, STYLES)}")
    read = read_weights(source)
    try:
        found = recognise_model(read.arrays, model or read.model)
    except WeightsError as error:
        raise WeightsError(f"{source}: {error}" + ("" if model else "; name it with --model")) from None
    net = create_model(**found)
    names = [parameter.name for parameter in net.get_parameters()]
    check_fit({parameter.name: parameter.shape for parameter in net.get_parameters()}, read.arrays, str(source))
    warning, useless = ("", False) if to == read.style else differences(to, names, _stem_kernel(read.arrays))
    if useless:
        raise WeightsError(f"to: {to!r}: {warning}")
    basic = is_basic(names)
    write_arrays(Path(target), {rename(name, to, basic): read.arrays[name] for name in names})
    unsure = "" if model or read.model else ambiguity(found["name"])
    warnings = [text for text in (read.warning, warning, unsure) if text]
    return {"model": found["name"], "from": read.style, "to": to, "tensors": len(names), "warnings": warnings}
