"""Weights from elsewhere into our nets, and ours into other projects' files: strict, or not at all."""

import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.checkpoint import MANIFEST, load_checkpoint
from resnet_fn.config import closest
from resnet_fn.ema import averages_of
from resnet_fn.migrate.files import Arrays, read_arrays, write_arrays
from resnet_fn.migrate.names import STYLES, differences, is_basic, recognise_style, rename, to_ours
from resnet_fn.models import MODELS, create_model
from resnet_fn.models.resnet import BasicBlock

HEAD = ("fc.weight", "fc.bias")


class WeightsError(ValueError):
    """Weights that do not fit; the message lists the names."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A weight file, read: its arrays under our names, the style they were in, what that style hides ("" or text)."""

    arrays: Arrays
    style: str
    warning: str


def read_weights(file: str | Path) -> Source:
    """Read weights in any style and format: `.pth`, `.safetensors`, `.ckpt`, or a checkpoint or run folder of ours.

    Of a run folder, the newest checkpoint; where the weights have a moving average, that is read.

    Optimizer state, step counts and BatchNorm counters are left out.

    Raises:
        ValueError: no such file, unknown names, or weights of a net that computes something else than ours.
    """
    path = Path(file)
    arrays = _read_folder(path) if path.is_dir() else read_arrays(path)
    try:
        style = recognise_style(arrays)
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from None
    ours = {new: arrays[old] for old, new in to_ours(arrays, style).items()}
    warning, useless = differences(style, ours)
    if useless:
        raise WeightsError(f"{path}: {warning}")
    return Source(ours, style, warning)


def _read_folder(path: Path) -> Arrays:
    if not (path / MANIFEST).exists():
        steps = sorted(p for p in (path / "checkpoints").glob("step-*") if (p / MANIFEST).exists())
        if not steps:
            raise WeightsError(f"{path}: is no checkpoint folder and no run folder; give a weight file or one of them")
        path = steps[-1]
    found = load_checkpoint(path)
    return {**found.weights, **averages_of(found.training)}


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
    _warn(file, source.warning)
    for name, parameter in parameters.items():
        _assign(parameter, arrays[name])


def _assign(parameter: Parameter, array: np.ndarray) -> None:
    ops.assign(parameter, Tensor(np.array(array)).astype(parameter.dtype))


def _warn(file: str | Path, warning: str) -> None:
    if warning:
        print(f"warning: {file}: {warning}", file=sys.stderr, flush=True)


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


def recognise_model(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What to give `create_model` for weights under our names: name, num_classes, in_channels, stem, norm, image_size.

    Raises:
        WeightsError: no model has these blocks; says what was found.
    """
    depths, block = [], re.compile(r"layer(\d+)\.(\d+)\.")
    found = [(int(match[1]), int(match[2])) for match in map(block.match, arrays) if match]
    for stage in range(1, 1 + max((stage for stage, _ in found), default=0)):
        depths.append(1 + max((number for layer, number in found if layer == stage), default=-1))
    try:
        planes = arrays["layer1.0.bn1.gamma" if "bn1.gamma" in arrays else "layer1.0.conv1.weight"].shape[0]
        width, per_group = arrays["layer1.0.conv2.weight"].shape[:2]
        deep = "conv1.0.weight" in arrays
        first = arrays["conv1.0.weight" if deep else "conv1.weight"]
        stem_channels = arrays["conv1.6.weight"].shape[0] if deep else first.shape[0]
    except KeyError as error:
        raise WeightsError(f"holds no {error.args[0]}, so it is no ResNet of ours") from None
    attention = _attention(arrays)
    stem = "d" if deep else "imagenet" if first.shape[-1] == 7 else "cifar"
    for name, design in MODELS.items():
        basic = design.block is BasicBlock
        wanted = design.planes[0] if basic else design.planes[0] * design.base_width // 64 * design.groups
        if (
            (design.depths, basic, design.planes[0]) == (tuple(depths), is_basic(arrays), stem_channels)
            and (wanted, design.attention) == (width, attention)
            and width // per_group == design.groups
            and planes == wanted
        ):
            gather = arrays.get("layer1.0.se.gather.conv1.weight")
            size = 224 if gather is None else gather.shape[-1] * (1 if stem == "cifar" else 4)
            classes = arrays["fc.weight"].shape[0] if "fc.weight" in arrays else 1000
            return {
                "name": name,
                "num_classes": classes,
                "in_channels": first.shape[1],
                "stem": stem,
                "norm": "batch" if "bn1.gamma" in arrays else "none",
                "image_size": size,
            }
    kind = "two-convolution" if is_basic(arrays) else "bottleneck"
    raise WeightsError(
        f"no model has {'-'.join(map(str, depths))} {kind} blocks of width {width} with {stem_channels} stem channels"
        + (f" and {attention} attention" if attention else "")
    )


def _attention(arrays: Mapping[str, np.ndarray]) -> str:
    if "layer1.0.se.fc1.weight" in arrays:
        return "se"
    if "layer1.0.se.mlp.fc1.weight" in arrays:
        return "ge-plus"
    # θ⁻ has no parameters: its weights are a plain ResNet-50's, and are recognised as one.
    return "ge" if "layer1.0.se.gather.conv1.weight" in arrays else ""


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
        found = {"name": model, **_details(read.arrays)} if model else recognise_model(read.arrays)
    except WeightsError as error:
        raise WeightsError(f"{source}: {error}; name it with --model") from None
    net = create_model(**found)
    names = [parameter.name for parameter in net.get_parameters()]
    check_fit({parameter.name: parameter.shape for parameter in net.get_parameters()}, read.arrays, str(source))
    warning, useless = ("", False) if to == read.style else differences(to, names)
    if useless:
        raise WeightsError(f"to: {to!r}: {warning}")
    basic = is_basic(names)
    write_arrays(Path(target), {rename(name, to, basic): read.arrays[name] for name in names})
    warnings = [text for text in (read.warning, warning) if text]
    return {"model": found["name"], "from": read.style, "to": to, "tensors": len(names), "warnings": warnings}


def _details(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    deep = "conv1.0.weight" in arrays
    first = arrays.get("conv1.0.weight" if deep else "conv1.weight")
    gather = arrays.get("layer1.0.se.gather.conv1.weight")
    kernel = 7 if first is None else first.shape[-1]
    stem = "d" if deep else "imagenet" if kernel == 7 else "cifar"
    return {
        "num_classes": arrays["fc.weight"].shape[0] if "fc.weight" in arrays else 1000,
        "in_channels": 3 if first is None else first.shape[1],
        "stem": stem,
        "norm": "batch" if "bn1.gamma" in arrays else "none",
        "image_size": 224 if gather is None else gather.shape[-1] * (1 if stem == "cifar" else 4),
    }
