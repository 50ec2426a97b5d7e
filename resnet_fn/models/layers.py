"""This module alone has the arguments of layers that MindSpore will rename, remove or give another default."""

from typing import Any

from mindspore import nn

Dense = nn.Dense  # to be named Linear


def conv_arguments(padding: int = 0, groups: int = 1, bias: bool = False) -> dict[str, Any]:
    """Return a Conv2d's arguments after channels, kernel and stride; its default `same` pads 0 and 1 at stride 2."""
    return {"pad_mode": "pad", "padding": padding, "dilation": 1, "group": groups, "has_bias": bias}


# PyTorch's BatchNorm: moving = 0.9 · moving + 0.1 · batch, which a later MindSpore will call 0.1.
NORM: dict[str, Any] = {"eps": 1e-5, "momentum": 0.9, "affine": True}
# Of pools, after kernel and stride; on an odd size the average is over the pixels inside.
MAX_POOL: dict[str, Any] = {"pad_mode": "pad", "padding": 1}
AVERAGE_POOL: dict[str, Any] = {"pad_mode": "same"}
