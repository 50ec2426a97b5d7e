"""The arguments of MindSpore's layers that it announces to rename, to remove or to give another default.

They stand here alone, each default that will change written out: a MindSpore that has the new ones needs this file
changed and no other (tests/test_announced.py).
"""

from typing import Any

from mindspore import nn

Dense = nn.Dense  # to be named Linear


def conv_arguments(padding: int = 0, groups: int = 1, bias: bool = False) -> dict[str, Any]:
    """What follows channels, kernel and stride of a Conv2d; its default pads by `same`, 0 and 1 where it strides."""
    return {"pad_mode": "pad", "padding": padding, "dilation": 1, "group": groups, "has_bias": bias}


def norm_arguments() -> dict[str, Any]:
    """PyTorch's BatchNorm: moving = 0.9 · moving + 0.1 · batch. The momentum will be 0.1, the batch's weight."""
    return {"eps": 1e-5, "momentum": 0.9, "affine": True}


def max_pool_arguments() -> dict[str, Any]:
    """What follows kernel and stride of a MaxPool2d that pads by 1."""
    return {"pad_mode": "pad", "padding": 1}


def average_pool_arguments() -> dict[str, Any]:
    """What follows kernel and stride of an AvgPool2d: on an odd size it averages the pixels inside."""
    return {"pad_mode": "same"}
