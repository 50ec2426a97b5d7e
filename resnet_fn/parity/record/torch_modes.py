"""Modes in which PyTorch's functions compute otherwise: in float64, with noise, with flipped ties."""

import contextlib
import functools
import traceback
from collections.abc import Iterator
from typing import Any

import torch

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record import torch_decisions
from resnet_fn.parity.record.torch_decisions import (
    PACKAGE,
    TORCH,
    Call,
    Decisions,
)

_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Turn float32 tensors into float64 inside a `with` block, for example the result of
    `torch.zeros(…)`.
    """

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDER:
            return leaf.to(_WIDER[leaf.dtype])
        return _WIDER.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

    wide = functools.partial(torch.utils._pytree.tree_map, widen)

    class Widen(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            # the second argument, a memo of copies, must not be mapped
            if function is torch.Tensor.__deepcopy__:
                return function(*args, **(kwargs or {}))
            function = torch.Tensor.double if function is torch.Tensor.float else function
            return wide(function(*wide(args), **wide(kwargs or {})))

    usual = torch.get_default_dtype()
    try:
        with Widen():
            torch.set_default_dtype(torch.float64)  # of `torch.full(…, finfo(dtype).min)`
            yield
    except Exception as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((TORCH, PACKAGE))
        ]
        location = "".join(
            f"{frame.filename}:{frame.lineno}: {frame.line}: " for frame in frames[-1:]
        )
        raise ValueError(
            f"reference: {location}the module fails in float64, which is needed to measure "
            f"rounding ({words_of(error)}); make tensors in the input's type, "
            "dtype=x.dtype"
        ) from error
    finally:
        torch.set_default_dtype(usual)


def in_mode(precision: str) -> contextlib.AbstractContextManager[None]:
    """Return `in_float64` for "float64", and a context without effect for other precisions."""
    return in_float64() if precision == "float64" else contextlib.nullcontext()


# Calls that do not round, because they only move, make or read numbers, or are given a hook, which
# a tensor with noise would lose.
_EXACT = """
    __deepcopy__ __get__ __getitem__ __reduce_ex__ __set__ arange backward cat chunk clone contiguous cpu detach dim
    double dropout embedding empty expand expand_as flatten flip float full gather index_select item masked_fill
    max_pool2d numpy ones ones_like pad permute register_hook register_post_accumulate_grad_hook relu relu_
    repeat reshape resolve_conj resolve_neg retain_grad roll size split squeeze stack swapaxes t tensor to tolist
    transpose unbind unflatten unsqueeze view view_as where zeros zeros_like
"""


class Noise(torch.overrides.TorchFunctionMode):
    """A context manager that adds relative noise of 2⁻²³, times `scale`, to float32 operands and
    results of calls that round.

    Numbers without a fraction below 2²³ get no noise: they count, or stand for a class or a place.
    If `decisions` are given, those of the run without noise are kept.
    """

    def __init__(self, seed: int, decisions: Decisions | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self._size = scale * 2**-23
        self.generator, self.exact = torch.Generator().manual_seed(seed), {*_EXACT.split()}
        self._decisions = decisions
        if decisions is not None:
            decisions.restart()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        call = Call(name, args, kwargs)
        in_place = call.in_place or name.startswith(("__i", "__set"))
        stays_exact = name in self.exact or in_place or "out" in kwargs
        if stays_exact or torch_decisions.is_in_vmap():
            return self._decided(call, function(*args, **kwargs))
        noisy = functools.partial(torch.utils._pytree.tree_map, self._add)
        kept = 1 if name == "batch_norm" else len(args)  # writes into its further arguments
        noisy_args = (*noisy(args[:kept]), *args[kept:])
        result = noisy(function(*noisy_args, **kwargs))
        return self._decided(Call(name, noisy_args, kwargs), result)

    def _decided(self, call: Call, result: Any) -> Any:
        return self._decisions.kept(call, result) if self._decisions is not None else result

    def _add(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _WIDER:
            return leaf
        whole = torch_decisions.whole_numbers(leaf.detach())
        noise = self._size * torch.randn(leaf.shape, generator=self.generator)
        return leaf * (1 + noise.masked_fill_(whole, 0.0))
