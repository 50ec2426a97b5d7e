"""This module has layers and arguments that a later MindSpore will rename or remove, or whose
defaults will change.
"""

from typing import Any

from mindspore import nn

Dense = nn.Dense  # a later MindSpore will name it Linear


def conv_arguments(padding: int = 0, groups: int = 1, bias: bool = False) -> dict[str, Any]:
    """Return keyword arguments for `nn.Conv2d` that pad every side by `padding` pixels."""
    return {"pad_mode": "pad", "padding": padding, "dilation": 1, "group": groups, "has_bias": bias}


# As in PyTorch, moving = 0.9 · moving + 0.1 · batch. A later MindSpore will call this momentum 0.1.
NORM: dict[str, Any] = {"eps": 1e-5, "momentum": 0.9, "affine": True}
# Arguments of pools after kernel and stride. At an odd size the average covers only pixels inside
# the image.
MAX_POOL: dict[str, Any] = {"pad_mode": "pad", "padding": 1}
AVERAGE_POOL: dict[str, Any] = {"pad_mode": "same"}
