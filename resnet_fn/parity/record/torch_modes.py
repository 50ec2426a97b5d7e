"""Modes in which PyTorch's functions compute otherwise: in float64, with noise, with flipped ties;
and one that notes unused limits and conditions."""

import contextlib
import functools
import linecache
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record import torch_decisions
from resnet_fn.parity.record.common import is_of_user
from resnet_fn.parity.record.torch_decisions import (
    PACKAGE,
    TORCH,
    Call,
    Decisions,
    caller_outside,
    place_of_frame,
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
            one
            for one in traceback.extract_tb(error.__traceback__)
            if not one.filename.startswith((TORCH, PACKAGE))
        ]
        place = "".join(f"{frame.filename}:{frame.lineno}: {frame.line}: " for frame in frames[-1:])
        raise ValueError(
            f"reference: {place}the module fails in float64, which is needed to measure rounding "
            f"({words_of(error)}); make tensors in the input's type, "
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
        given = (*noisy(args[:kept]), *args[kept:])
        result = noisy(function(*given, **kwargs))
        return self._decided(Call(name, given, kwargs), result)

    def _decided(self, call: Call, result: Any) -> Any:
        return self._decisions.kept(call, result) if self._decisions is not None else result

    def _add(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _WIDER:
            return leaf
        whole = torch_decisions.whole_numbers(leaf.detach())
        noise = self._size * torch.randn(leaf.shape, generator=self.generator)
        return leaf * (1 + noise.masked_fill_(whole, 0.0))


# Functions that limit numbers → the names of their arguments after the first.
_LIMITED = {
    "clamp": ("min", "max"),
    "clip": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "normalize": ("p", "dim", "eps"),
}


# Functions that choose between numbers → the place of the condition among their arguments.
_CHOOSE = {"where": 0, "masked_fill": 1, "__bool__": 0}

# Functions that treat NaN, and for some infinities, in another way.
_OF_NAN = {"nan_to_num", "nansum", "nanmean", "nanmedian", "nanquantile"}

_IGNORED = -100  # what PyTorch's losses ignore by default


class Limits(torch.overrides.TorchFunctionMode):
    """A context manager that notes unused limits, such as `clamp(min=1e-12)` if all numbers are 0
    or above 1e-12, and conditions of the user's code that are always true or always false.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached: dict[str, bool] = {}
        self._conditions: dict[str, set[bool]] = {}  # the values of each, by place

    @property
    def lines(self) -> list[str]:
        """A line for each limit that changes no number except 0, such as "net.py:31, clamp: nothing
        below 1e-12", and for each condition that has one value only.
        """
        lines = [line for line, reached in self.reached.items() if not reached]
        for place, (value, *others) in self._conditions.items():
            if not others:
                lines.append(f"{place}: a condition is always {str(value).lower()}")
        return lines

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        call = Call(getattr(function, "__name__", ""), args, kwargs or {})
        if args and not torch_decisions.is_in_vmap():
            with contextlib.suppress(Exception):  # of a tensor without numbers, for example
                self._note(call, function)
        return function(*args, **call.kwargs)

    def _note(self, call: Call, function: Any) -> None:
        if call.plain in _LIMITED:
            self._note_limits(call)
        elif call.plain in ("cross_entropy", "nll_loss"):
            self._note_ignored(call)
        elif call.plain in (*_CHOOSE, *_OF_NAN):
            index = 1 if function is torch.Tensor.where else _CHOOSE.get(call.plain)
            self._note_condition(call, index)

    def _note_limits(self, call: Call) -> None:
        x = call.args[0]
        given = dict(zip(_LIMITED[call.plain], call.args[1:], strict=False)) | call.kwargs
        if call.plain == "normalize":
            x = x.norm(given.get("p", 2.0), given.get("dim", 1))
            given["min"] = given.get("eps", 1e-12)
        place = _if_of_user(caller_outside((TORCH, torch_decisions.__file__, __file__)))
        for end, word in (("min", "below"), ("max", "above")):
            limit = given.get(end)
            if place and isinstance(limit, int | float):
                beyond = x < limit if end == "min" else x > limit
                line = f"{place}, {call.plain}: nothing {word} {limit:g}"
                self._reach(line, bool((beyond & (x != 0)).any()))

    def _note_ignored(self, call: Call) -> None:
        ignored = call.kwargs.get("ignore_index", _IGNORED)
        labels = call.args[1] if len(call.args) > 1 else call.kwargs["target"]
        place = _if_of_user(caller_outside((TORCH, torch_decisions.__file__, __file__)))
        if place and ignored != _IGNORED:
            line = f"{place}, {call.plain}: no label is {ignored}, which it ignores"
            self._reach(line, bool((labels == ignored).any()))

    def _note_condition(self, call: Call, index: int | None) -> None:
        """Note the condition in a call that the user's code makes itself, or whether there is NaN.

        `index` is the place of the condition among the arguments.
        """
        frame: FrameType | None = sys._getframe(3)
        while frame is not None and frame.f_code.co_name == "__torch_function__":  # other modes
            frame = frame.f_back
        place = _if_of_user(frame)
        if not place or frame is None:
            return
        if call.plain in _OF_NAN:
            line = f"{place}, {call.plain}: every number is finite"
            self._reach(line, not bool(torch.isfinite(call.args[0]).all()))
        elif index is not None and len(call.args) > index:
            condition = call.args[index]
            if not is_of_user(frame.f_code.co_filename):
                return
            if _is_check(call, frame):
                return
            if getattr(condition, "dtype", None) == torch.bool and condition.numel():
                words = "" if call.plain == "__bool__" else f" ({call.plain})"
                seen = self._conditions.setdefault(place + words, set())
                seen.update((bool(condition.any()), bool(condition.all())))

    def _reach(self, line: str, reached: bool) -> None:
        self.reached[line] = self.reached.get(line, False) or reached


def _is_check(call: Call, frame: FrameType) -> bool:
    """Return whether a condition is only checked: by `assert`, or by an `if` that raises."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    this, following = (linecache.getline(file, number).strip() for number in (line, line + 1))
    is_checked = this.startswith("assert") or ": raise " in this or following.startswith("raise")
    return call.plain == "__bool__" and is_checked


def _if_of_user(frame: FrameType | None) -> str:
    """Return the place of a frame; "" if it is not in the user's code."""
    if frame is None or frame.f_code.co_filename.startswith((TORCH, PACKAGE)):
        return ""
    return place_of_frame(frame)
