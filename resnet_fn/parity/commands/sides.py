"""Both sides as a command asks for them: MindSpore started, its net, the reference in torch."""

import argparse
from collections.abc import Callable
from typing import Any

from resnet_fn.config import cli
from resnet_fn.parity.commands.flags import net_arguments
from resnet_fn.parity.commands.functions import returned
from resnet_fn.parity.matching.corrections import Corrections, read_map
from resnet_fn.parity.torch_side.vision import find_torchvision
from resnet_fn.parity.traces.trace import Task


def add_net_flags(group: argparse._ArgumentGroup) -> None:
    """What MindSpore's side is made of, beside the net."""
    group.add_argument("--our-loss", metavar="FILE:FUNCTION", help="MindSpore's, of (outputs, labels)")
    group.add_argument(
        "--our-optimizer",
        metavar="FILE:FUNCTION",
        help="of the net: returns an optimizer of MindSpore's or of this package",
    )
    add_map_flag(group)
    group.add_argument(
        "--no-initialisation", action="store_true", help="leave out initialisation (nets that load trained weights)"
    )


def add_map_flag(group: argparse._ArgumentGroup) -> None:
    """Corrections of which parameter is which."""
    group.add_argument(
        "--map", metavar="FILE", help="a JSON of {ours: the reference's} that corrects the matching (docs/parity.md)"
    )


def corrections_in(parsed: argparse.Namespace) -> Corrections | None:
    """What --map says.

    Raises:
        UsageError: the file is not there, or says what cannot be.
    """
    with cli.usage_errors():
        return read_map(parsed.map) if parsed.map else None


def start(parsed: argparse.Namespace, seed: int) -> None:
    """Start MindSpore as the flags say."""
    import mindspore

    from resnet_fn.runtime import process

    process.start(parsed.device, parsed.threads)
    mindspore.set_seed(seed + 1)  # MindSpore reads 0 as "no seed given"


def build_net(function: Callable[[], Any] | None, place: str | None, model: str, task: Task, classes: int) -> Any:
    """The user's net, or one of this package that fits the task."""
    from mindspore import nn

    from resnet_fn.models import create_model

    if function is not None:
        return returned("--net", str(place), function(), nn.Cell, "a MindSpore Cell")
    recipe = task.recipe
    return create_model(
        model,
        initialisation=recipe.initialisation,
        zero_init_residual=recipe.zero_init_residual,
        precision=recipe.precision,
        **net_arguments(task, classes),
    )


def reference_of(model: str, shape: dict[str, Any], zero_init_residual: bool) -> Any:
    """Torchvision's own net where it loads and has this one; else the one that the package carries."""
    import torch

    plain = shape["in_channels"] == 3 and not shape["stem"] and shape["norm"] == "batch"
    torchvision = find_torchvision() if plain else None
    if torchvision and hasattr(torchvision.models, model):
        known = {"zero_init_residual": True} if zero_init_residual else {}
        return getattr(torchvision.models, model)(num_classes=shape["num_classes"], **known)
    from resnet_fn.parity.torch_side.reference import reference_net

    net = reference_net(model, **shape)
    if zero_init_residual:
        for name, layer in net.named_modules():
            last = name.rpartition(".")[2] == ("bn3" if hasattr(_parent(net, name), "conv3") else "bn2")
            if name.startswith("layer") and last and isinstance(layer, torch.nn.BatchNorm2d):
                torch.nn.init.zeros_(layer.weight)
    return net


def _parent(net: Any, name: str) -> Any:
    return net.get_submodule(name.rpartition(".")[0])
