"""These functions recognise the model that weights belong to, and compare weights with a net."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.checkpoint.parameters import misfits
from resnet_fn.checkpoint.tensor_file import Arrays
from resnet_fn.config.hints import suggest_name
from resnet_fn.models import MODELS
from resnet_fn.models.parts import HEAD
from resnet_fn.models.resnet import BasicBlock, Design
from resnet_fn.weights.names import is_basic

_BLOCK = re.compile(r"layer(\d+)\.(\d+)\.")


class WeightsError(ValueError):
    """Raised if weights do not fit a net, or if a net cannot use them."""


def recognise_model(arrays: Arrays, model: str = "") -> dict[str, Any]:
    """Return the arguments of `create_model` for a net that fits the weights in `arrays`.

    The arrays have this package's names. If `model` is empty, the model is recognised from names
    and shapes.
    """
    if model and model not in MODELS:
        raise ValueError(f"model: {model!r} is unknown; {suggest_name(model, MODELS)}")
    deep = "conv1.0.weight" in arrays
    first = _array(arrays, "conv1.0.weight" if deep else "conv1.weight")
    stem = "d" if deep else "imagenet" if first.shape[-1] == 7 else "cifar"
    gather = "layer1.0.se.gather.conv1.weight"
    image_size = 224
    if gather in arrays:
        image_size = _array(arrays, gather).shape[-1] * (1 if stem == "cifar" else 4)
    return {
        "name": model or _name(arrays, _array(arrays, "conv1.6.weight") if deep else first),
        "num_classes": _array(arrays, "fc.weight", 2).shape[0] if "fc.weight" in arrays else 1000,
        "in_channels": first.shape[1],
        "stem": stem,
        "norm": "batch" if "bn1.gamma" in arrays else "none",
        "image_size": image_size,
    }


def same_parameters(name: str) -> tuple[str, ...]:
    """Return the other models that have the same parameters as model `name`."""
    return tuple(
        candidate
        for candidate in MODELS
        if candidate != name and _parameters(candidate) == _parameters(name)
    )


def check_fit(wanted: Mapping[str, Sequence[int]], arrays: Arrays, file: str) -> None:
    """Raise WeightsError if names or shapes of `arrays` differ from `wanted`.

    The message lists all differences.
    """
    if faults := misfits(wanted, arrays):
        differences = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in faults.items())
        only_head = all(name.startswith(f"{HEAD}.") for names in faults.values() for name in names)
        fix = (
            "give weights for these classes, train with --weights FILE to make a new head, or keep "
            "the net's own head with reset_head=True"
            if only_head
            else "give the model of these weights"
        )
        raise WeightsError(f"{file} does not fit the net ({differences}); {fix}")


def ambiguity(name: str) -> str:
    """Return a warning if another model has the same parameters as model `name`, else ""."""
    others = same_parameters(name)
    if not others:
        return ""
    return (
        f"{' and '.join((name, *others))} have the same parameters; these weights are read as "
        f"{name}, so give --model NAME for another model"
    )


def _parameters(name: str) -> Design:
    """Return the design of a model, without gates that have no parameters."""
    design = MODELS[name]
    return dataclasses.replace(design, attention=design.attention.replace("ge-minus", ""))


def _name(arrays: Arrays, last_of_stem: np.ndarray) -> str:
    stem_channels = last_of_stem.shape[0]
    depths: dict[int, int] = {}  # number of blocks by stage
    for match in filter(None, map(_BLOCK.match, arrays)):
        stage, block = map(int, match.groups())
        depths[stage] = max(depths.get(stage, 0), block + 1)
    basic = is_basic(arrays)
    attention = _attention(arrays)
    planes = _array(arrays, "layer1.0.conv1.weight").shape[0]
    width, per_group = _array(arrays, "layer1.0.conv2.weight").shape[:2]
    seen = (depths, basic, stem_channels, attention, planes, width, per_group)
    for name, design in MODELS.items():
        is_basic_block = design.block is BasicBlock
        first = design.planes[0]
        wide = first if is_basic_block else first * design.base_width * design.groups // 64
        expected = (
            dict(enumerate(design.depths, 1)),
            is_basic_block,
            first,
            design.attention,
            wide,
            wide,
            wide // design.groups,
        )
        if seen == expected:
            return name
    gates = f" and {attention} attention" if attention else ""
    blocks = "-".join(str(depths.get(stage, 0)) for stage in range(1, 1 + max(depths, default=0)))
    raise WeightsError(
        f"no model has {blocks} {'two-convolution' if basic else 'bottleneck'} "
        f"blocks of width {width} with {stem_channels} stem channels{gates}"
    )


def _attention(arrays: Arrays) -> str:
    if "layer1.0.se.fc1.weight" in arrays:
        return "se"
    if "layer1.0.se.mlp.fc1.weight" in arrays:
        return "ge-plus"
    # Gates of θ⁻ have no parameters, so that the weights are recognised as a plain ResNet-50's.
    return "ge" if "layer1.0.se.gather.conv1.weight" in arrays else ""


def _array(arrays: Arrays, name: str, dimensions: int = 4) -> np.ndarray:
    if name not in arrays:
        raise WeightsError(
            f"the weights contain no {name}, so no ResNet of this package fits; give other weights"
        )
    shape = arrays[name].shape
    if len(shape) != dimensions:
        raise WeightsError(
            f"{name} has the shape {list(shape)}, not {dimensions} dimensions; give other weights"
        )
    return arrays[name]
