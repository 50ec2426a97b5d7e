"""A module's torch calls, numbered, with what each depends on, and changed one at a time. Needs PyTorch."""

import dataclasses
import functools
import inspect
import math
import os
import re
import sys
import traceback
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Chosen = dict[int, str]  # the number of a call: its change, in words
Changes = Iterator[tuple[str, Callable[[], Any]]]  # words: "eps 1e-06 for 1e-05"; what the call gives then

_RECENT = 14  # arrays of so many earlier calls are tried as arguments
_SIGNATURES = torch.overrides.get_testing_overrides()  # for each function of torch, one with its arguments
_HERE = os.path.dirname(__file__)
# What the files begin with of which no line is named.
_INSIDE = (os.path.join(os.path.dirname(torch.__file__), ""), __file__, os.path.join(_HERE, "reference", ""), "<")
# What calls the reference and its loss.
_ABOVE = tuple(os.path.join(_HERE, name) for name in ("search.py", "torch_side.py", "trace.py"))
# Calls that are neither counted nor changed.
_NOT_COUNTED = """
    __get__ __set__ size dim __len__ item is_floating_point type detach clone numel contiguous to float double
    requires_grad_ backward tolist __bool__ stride ndimension is_complex zero_ _assert __format__ __repr__ numpy
    is_nested __deepcopy__ cpu __int__ __float__ __index__ __reduce_ex__ __hash__ dropout new_zeros
"""
_SKIPPED = frozenset(_NOT_COUNTED.split())
_RENAMED = {
    **dict.fromkeys(("truediv", "divide"), "div"),
    **dict.fromkeys(("rmatmul", "bmm", "mm"), "matmul"),
    **dict.fromkeys(("rmul", "multiply"), "mul"),
    **{"radd": "add", "subtract": "sub", "swapaxes": "transpose", "view": "reshape", "concat": "cat", "clip": "clamp"},
}


def _name(function: Any) -> str:
    """A function's name, without underscores and dimensions: "add", "conv"."""
    name = re.sub("[123]d$", "", getattr(function, "__name__", "").strip("_"))
    return _RENAMED.get(name, name)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Any:
    """`scaled_dot_product_attention`, call by call."""
    scale = more.get("scale")
    if more.get("enable_gqa"):
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:  # a row that is masked whole gives 0, as torch's own does
        weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return weights @ value


def _opened(function: Any) -> Any:
    """A Python function of torch's, of which each torch call is seen."""
    never = {name: lambda *_: False for name in function.__globals__ if name.startswith("has_torch_function")}
    opened = types.FunctionType(function.__code__, {**function.__globals__, **never}, None, function.__defaults__)
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


_OPENED = {
    F.multi_head_attention_forward: _opened(F.multi_head_attention_forward),
    F.scaled_dot_product_attention: _attention,
}


@dataclasses.dataclass
class Call:
    """One torch call of the reference."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    out: Any
    others: Sequence[tuple[str, Any]] = ()  # arrays that earlier calls gave, in words

    @property
    def x(self) -> Any:
        """Its first argument."""
        return self.args[0] if self.args else None

    @functools.cached_property
    def bound(self) -> dict[str, Any]:
        """Its arguments by name; the first is "input"."""
        known = _SIGNATURES.get(self.function)
        names = [*inspect.signature(known).parameters][1:] if known else ["dim"]
        return {**dict(zip(["input", *names], self.args, strict=False)), **self.kwargs}

    def again(self, **changed: Any) -> Any:
        """What it gives with other arguments."""
        given = {**self.bound, **changed}
        return self.function(given.pop("input"), **given)

    def with_argument(self, place: int, value: Any) -> Any:
        """What it gives with another argument at a place."""
        return self.function(*self.args[:place], value, *self.args[place + 1 :], **self.kwargs)


def is_float(value: Any) -> bool:
    """Whether it is a tensor of floats."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class Calls(TorchFunctionMode):
    """Inside, torch calls are numbered, and those in `chosen` changed.

    Args:
        changes: the changes of a call.
        chosen: the calls to change.
        base: a run that kept its calls; those before the first that is changed otherwise give what they gave there.
        names: of the module's layers, by their ids.
        log: keep each call, and what it depends on.
        check: called before each call; it raises an error when the search's time is over.
    """

    def __init__(
        self,
        changes: Callable[[Call], Changes],
        chosen: Chosen,
        base: "Calls | None" = None,
        names: Mapping[int, str] | None = None,
        log: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.changes, self.chosen, self.names, self.log, self.check = changes, chosen, names or {}, log, check
        self.count = self.of_forward = 0  # all calls, and those of the module
        self.calls: dict[int, Call] = {}
        self.places: dict[int, str] = base.places if base is not None else {}  # file and line, and the layer
        self.parents: dict[int, set[int]] = {}  # of each call: the calls that gave its arguments
        self.producers: dict[int, set[int]] = defaultdict(set)  # of each tensor, by its id: the calls that gave it
        self.alive: list[Any] = []  # else an id would be given again
        self.others: list[tuple[str, Any]] = []
        self.in_place = False  # whether a call writes into its argument: then no output may be used again
        reused = base is not None and not base.in_place and not torch.is_grad_enabled()
        self.base = base.calls if base is not None and reused else {}
        self.first = min(set(chosen) - set(base.chosen if base else ()), default=0)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _OPENED:
            with self:
                return _OPENED[function](*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name in _SKIPPED:
            out = function(*args, **kwargs)
            self.produced(out, self._of((args, kwargs)))
            return out
        self.check()
        self.count += 1
        number = self.count
        if number < self.first and number in self.base:
            out = self.base[number].out
        else:
            out = self._computed(number, function, args, kwargs)
        if is_float(out) and out.ndim > 1:
            self.others.append((f"the {_name(function)} of {self.places.get(number, '')}", out))
            del self.others[:-_RECENT]
        self.produced(args[0] if name == "__setitem__" else out, {number})
        return out

    def _computed(self, number: int, function: Any, args: Any, kwargs: Any) -> Any:
        """What a call gives, with its change. One that writes into its argument is computed apart, and copied."""
        name, target, plain = getattr(function, "__name__", ""), None, function
        if name.startswith("__i"):
            plain = getattr(torch.Tensor, name.replace("__i", "__"), function)
        elif name.endswith("_") and not name.endswith("__"):
            self.in_place, plain = True, getattr(torch.Tensor, name[:-1], function)
        parents = self._of((args, kwargs))
        if plain is not function or kwargs.get("inplace"):
            target, args, kwargs = args[0], (args[0].clone(), *args[1:]), {**kwargs}
            kwargs.pop("inplace", None)
        self.in_place |= target is not None or name == "__setitem__"
        call = Call(_name(plain), plain, args, kwargs, plain(*args, **kwargs), self.others[-_RECENT:])
        if number in self.chosen:
            call.out = next(value() for words, value in self.changes(call) if words == self.chosen[number])
        if self.log:
            self.calls[number], self.parents[number] = call, parents
            self.places[number] = self._place()
        if target is None:
            return call.out
        if call.out.shape != target.shape:  # `unsqueeze_`: it gives the same numbers in another shape
            return function(target, *args[1:], **kwargs)
        return target.copy_(call.out)

    def _of(self, tree: Any) -> set[int]:
        if not self.log:
            return set()
        tensors = [one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)]
        return set[int]().union(*(self.producers[id(one)] for one in tensors))

    def produced(self, tree: Any, calls: set[int]) -> None:
        """Note which calls gave tensors."""
        for leaf in torch.utils._pytree.tree_leaves(tree) if self.log else ():
            if isinstance(leaf, torch.Tensor):
                self.producers[id(leaf)] = calls
                self.alive.append(leaf)

    def region(self, tree: Any) -> list[int]:
        """The calls on which tensors depend, except through layers that agree."""
        region, waiting = set[int](), self._of(tree)
        while waiting:
            region |= waiting
            waiting = set[int]().union(*(self.parents[one] for one in waiting)) - region
        return sorted(region, reverse=True)

    def _place(self) -> str:
        where = layer = ""
        for frame, line in traceback.walk_stack(sys._getframe(2)):
            file = frame.f_code.co_filename
            if file in _ABOVE or (where and layer):  # a Sequential has no file of the user's
                break
            if not where and not file.startswith(_INSIDE):
                where = f"{os.path.basename(file)}:{line}"
            layer = layer or self.names.get(id(frame.f_locals.get("self")), "")
        return f"{where} ({layer})".strip() if layer else where or "the reference"
