"""This module alone has the arguments of layers that MindSpore will rename, remove or give another default.

Each default that will change is written out. When MindSpore changes them, only this file must change
(tests/test_announced.py).
"""

from typing import Any

from mindspore import nn

Dense = nn.Dense  # to be named Linear


def conv_arguments(padding: int = 0, groups: int = 1, bias: bool = False) -> dict[str, Any]:
    """Return a Conv2d's arguments after channels, kernel and stride; its default `same` pads 0 and 1 at stride 2."""
    return {"pad_mode": "pad", "padding": padding, "dilation": 1, "group": groups, "has_bias": bias}


def norm_arguments() -> dict[str, Any]:
    """Return PyTorch's BatchNorm: moving = 0.9 · moving + 0.1 · batch, which a later MindSpore will call 0.1."""
    return {"eps": 1e-5, "momentum": 0.9, "affine": True}


def max_pool_arguments() -> dict[str, Any]:
    """Return a MaxPool2d's arguments after kernel and stride, with a padding of 1."""
    return {"pad_mode": "pad", "padding": 1}


def average_pool_arguments() -> dict[str, Any]:
    """Return an AvgPool2d's arguments after kernel and stride; on an odd size it averages the pixels inside."""
    return {"pad_mode": "same"}
