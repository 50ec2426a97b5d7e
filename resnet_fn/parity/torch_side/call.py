"""Calling a torch module with a batch of the ladder."""

from typing import Any

import numpy as np
import torch

from resnet_fn.parity.batches import Tree, map_tree


def tensors(tree: Tree, dtype: torch.dtype) -> Tree:
    """Arrays as tensors, floats in `dtype`."""
    return map_tree(
        lambda leaf: torch.from_numpy(np.ascontiguousarray(leaf)).to(dtype if leaf.dtype.kind == "f" else None), tree
    )


def call(module: torch.nn.Module, inputs: Tree) -> Any:
    """A tuple's leaves are positional arguments, a dict's go by their keys."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)
