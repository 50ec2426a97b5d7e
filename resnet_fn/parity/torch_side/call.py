"""Calling a torch module with a batch of the ladder."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from resnet_fn.config.hints import first_line
from resnet_fn.parity.traces.batches import Tree, describe, map_tree


def tensors(tree: Tree, dtype: torch.dtype) -> Tree:
    """Arrays as tensors, floats in `dtype`."""
    return map_tree(
        lambda leaf: torch.from_numpy(np.ascontiguousarray(leaf)).to(dtype if leaf.dtype.kind == "f" else None), tree
    )


def first_call(module: torch.nn.Module, inputs: Tree) -> Any:
    """What a module returns for a batch, in evaluation mode; its mode is left as found.

    Raises:
        ValueError: it fails; says on which inputs, and why.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return call(module, tensors(inputs, torch.float32))
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(
            f"reference: it fails on {describe(inputs)} ({why}); give --inputs, or sizes that it takes"
        ) from error
    finally:
        module.train(was_training)


@contextlib.contextmanager
def _no_fast_path() -> Iterator[None]:
    """Inside, transformers in evaluation mode run layer by layer, as in training.

    torch's fused kernels run no hooks of the layers inside, and give zeros where a padding mask hides a token.
    """
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


@_no_fast_path()
def call(module: torch.nn.Module, inputs: Tree) -> Any:
    """A tuple's leaves are positional arguments, a dict's go by their keys."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)
