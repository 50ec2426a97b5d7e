"""Record the torch calls that a module makes, and change chosen calls.

This module needs PyTorch.
"""

import dataclasses
import functools
import inspect
import math
import os
import sys
import time
import traceback
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from resnet_fn.parity.record.torch_decisions import is_float

Chosen = dict[int, str]  # the number of a call → the description of its change

# (title: what the port may do, a function that computes the changed result)
Changes = Iterator[tuple[str, Callable[[], Any]]]

# (the number of a call, the description of a change) → the changed result, for changes that depend
# on more than the call
Solved = dict[tuple[int, str], Callable[["Call"], Any]]

_RECENT = 14  # the number of latest calls whose results are tried as arguments

_ARGUMENTS = {  # the names of the arguments, in order, of functions that have no Python signature
    "layer_norm": "input normalized_shape weight bias eps cudnn_enable",
    "group_norm": "input num_groups weight bias eps cudnn_enabled",
    "rms_norm": "input normalized_shape weight eps",
    "batch_norm": "input weight bias running_mean running_var training momentum eps cudnn_enabled",
    "instance_norm": "input weight bias running_mean running_var use_input_stats momentum eps "
    "cudnn_enabled",
    "conv": "input weight bias stride padding dilation groups",
    "conv_transpose": "input weight bias stride padding output_padding groups dilation",
    "linear": "input weight bias",
    "avg_pool": "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "max_pool": "input kernel_size stride padding dilation ceil_mode",
    "masked_fill": "input mask value",
    "clamp": "input min max",
    "norm": "input p dim",
    **dict.fromkeys(("chunk", "split"), "input size dim"),
    "repeat_interleave": "input repeats dim",
}

_PARITY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")

# Prefixes of files (torch's, this file, the package's nets) that are never named as the place of a
# call.
_INSIDE = (
    os.path.join(os.path.dirname(torch.__file__), ""),
    __file__,
    os.path.join(_PARITY, "reference", ""),
    "<",
)

# Calls that are neither counted nor changed.
_NOT_COUNTED = """
    __get__ __set__ size dim __len__ item is_floating_point type clone numel contiguous to float double
    requires_grad_ backward tolist __bool__ stride ndimension is_complex zero_ _assert __format__ __repr__ numpy
    is_nested __deepcopy__ cpu __int__ __float__ __index__ __reduce_ex__ __hash__ dropout new_zeros
"""

# In-place calls that are not replaced, because they change a shape or differ from the call without
# "_".
_AS_THEY_ARE = """
    squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ resize_ detach_ normal_ copy_ set_
"""

_SKIPPED, _UNCHANGED = frozenset(_NOT_COUNTED.split()), frozenset(_AS_THEY_ARE.split())

_WRITING = (
    "__setitem__",
    "__ipow__",
    "__ifloordiv__",
    "__imod__",
    "__ixor__",
    "__iand__",
    "__ior__",
)

_RENAMED = {
    **dict.fromkeys(("truediv", "divide", "true_divide", "itruediv"), "div"),
    **dict.fromkeys(("rmatmul", "bmm", "mm"), "matmul"),
    **dict.fromkeys(("radd", "iadd"), "add"),
    **dict.fromkeys(("rmul", "imul", "multiply"), "mul"),
    **dict.fromkeys(("isub", "subtract"), "sub"),
    **{
        "invert": "logical_not",
        "bitwise_not": "logical_not",
        "swapaxes": "transpose",
        "view": "reshape",
    },
    **{"concat": "cat", "clip": "clamp"},
}


def _is_above(file: str) -> bool:
    """Return whether a file is this package's: it calls the reference and its loss. The search for
    a call's place in the stack ends there.
    """
    return file.startswith(_PARITY) and not file.startswith(_INSIDE)


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "").strip("_")
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
    """Compute `scaled_dot_product_attention` with separate torch calls, so that each call can be
    changed.
    """
    scale = more.get("scale")
    if more.get("enable_gqa"):
        key, value = (
            tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)
            for tensor in (key, value)
        )
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    if attn_mask is not None:
        scores = (
            scores.masked_fill(~attn_mask, -math.inf)
            if attn_mask.dtype == torch.bool
            else scores + attn_mask
        )
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:  # a fully masked row gives 0, as in torch
        weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return weights @ value


def _opened(function: Any) -> Any:
    """Return a copy of the torch function `function`, so that the torch calls in its Python code
    are recorded.
    """
    never = {
        name: lambda *_: False
        for name in function.__globals__
        if name.startswith("has_torch_function")
    }
    opened = types.FunctionType(
        function.__code__, {**function.__globals__, **never}, None, function.__defaults__
    )
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


_OPENED = {
    F.multi_head_attention_forward: _opened(F.multi_head_attention_forward),
    F.scaled_dot_product_attention: _attention,
}


@dataclasses.dataclass
class Call:
    """One call of a torch function by the reference."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    out: Any
    others: Sequence[tuple[str, Any]] = ()  # (description, result) of each of the latest calls
    # the function that the net calls, which may be the in-place variant of `function`
    asked: Any = None
    # the place of an argument that `detach` returned → the tensor that was detached
    undetached: Mapping[int, Any] = dataclasses.field(default_factory=dict)

    @property
    def x(self) -> Any:
        """The first positional argument, or None if there is none."""
        return self.args[0] if self.args else None

    @property
    def kind(self) -> str:
        """The name without the number of dimensions, for example "conv" for "conv2d"."""
        return (
            self.name.rstrip("123d")
            if self.name.startswith(("conv", "avg_pool", "max_pool"))
            else self.name
        )

    @functools.cached_property
    def bound(self) -> dict[str, Any]:
        """The arguments of the call by name."""
        of_python = getattr(self.function, "__module__", "") == F.__name__
        own = inspect.signature(self.function).parameters if of_python else {}
        names = own if "input" in own else _ARGUMENTS.get(self.kind, "input dim").split()
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    def again(self, **changed: Any) -> Any:
        """Compute the call again with some arguments replaced, and return the new result."""
        arguments = {**self.bound, **changed}
        return self.function(arguments.pop("input"), **arguments)

    def with_argument(self, place: int, value: Any) -> Any:
        """Compute the call again with `value` as positional argument number `place`, counted from
        0.
        """
        return self.function(*self.args[:place], value, *self.args[place + 1 :], **self.kwargs)


class Calls(TorchFunctionMode):
    """Number the torch calls inside a `with` block, and change the calls in `chosen`.

    Args:
        changes: a function that yields the possible changes of a call.
        base: None, or an earlier run whose results may be reused until the first call that only
            this run changes.
        names: a dict from the `id()` of a layer to the layer's name.
        log: whether to record each call, and which earlier calls computed its arguments.
        solved: further changes, beside those of `changes`.
        until: the value of `time.perf_counter()` after which a call raises TimeoutError.
    """

    def __init__(
        self,
        changes: Any,
        chosen: Chosen,
        base: "Calls | None",
        names: Mapping[int, str],
        log: bool,
        until: float,
        solved: Solved | None = None,
    ) -> None:
        super().__init__()
        self.solved = solved or {}
        # the id of a detached tensor → (the detached tensor, the tensor that it shares its numbers
        # with)
        self.detached: dict[int, tuple[Any, Any]] = {}
        self.changes, self.chosen, self.names, self.log, self.count = changes, chosen, names, log, 0
        self.until = until
        self.calls: dict[int, Call] = {}
        # of each call: file, line, layer
        self.places: dict[int, str] = base.places if base is not None else {}
        # of each call: the calls that computed its arguments
        self.parents: dict[int, set[int]] = {}
        # tensor's id → calls that computed it
        self.producers: dict[int, set[int]] = defaultdict(set)
        self.alive: list[Any] = []  # keeps the tensors of `producers`, so that no id is reused
        # whether a call writes into its argument; calls of forward
        self.in_place, self.of_forward = False, 0
        self.others: list[tuple[str, Any]] = []
        reused = base is not None and not base.in_place and not torch.is_grad_enabled()
        self.base = base.calls if base is not None and reused else {}
        self.first = min(set(chosen) - set(base.chosen if base else ()), default=0)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _OPENED:
            with self:
                return _OPENED[function](*args, **kwargs)
        raw = getattr(function, "__name__", "")
        caller = sys._getframe(1).f_code.co_filename
        if raw in _SKIPPED or (raw == "detach" and _is_above(caller)):
            out = function(*args, **kwargs)
            self.produced(out, self._of((args, kwargs)))
            return out
        if time.perf_counter() > self.until:
            raise TimeoutError("the search for causes ran out of time")
        self.count += 1
        number = self.count
        call = self.base.get(number) if number < self.first else None
        if call is not None and not self._same(call, function, args):
            # the net behaves differently in this run, so nothing is reused from here on
            self.base, call = {}, None
        if call is not None:
            out = call.out
        else:
            out, call = self._computed(raw, function, args, kwargs)
        if is_float(out) and out.ndim > 1:
            self.others.append((f"the {call.name} of {self.places.get(number, '')}", out))
            del self.others[:-_RECENT]
        self.produced(args[0] if raw == "__setitem__" else out, {number})
        return out

    def _computed(self, raw: str, function: Any, args: Any, kwargs: Any) -> tuple[Any, Call]:
        """Call a function, perhaps changed. Return what the net gets, and the call."""
        asked, number, target = function, self.count, None
        of_itself = raw.endswith("_") and not raw.endswith("__")
        plain = None
        if of_itself:
            plain = getattr(torch.Tensor, raw[:-1], None) or getattr(torch, raw[:-1], None)
        if of_itself and (plain is None or raw in _UNCHANGED):
            self.in_place = True
        elif of_itself:
            target, function = args[0], plain
        elif raw in ("__iadd__", "__imul__", "__isub__", "__itruediv__"):
            target, function = args[0], getattr(torch.Tensor, raw.replace("__i", "__"))
        elif kwargs.get("inplace"):
            target, kwargs = args[0], {**kwargs, "inplace": False}
        self.in_place |= target is not None or raw in _WRITING
        parents = self._of((args, kwargs))
        args = (target.clone(), *args[1:]) if target is not None else args
        call = Call(
            _name(function),
            function,
            args,
            kwargs,
            function(*args, **kwargs),
            self.others[-_RECENT:],
            asked,
            self._undetached(args),
        )
        if number in self.chosen:
            call.out = self._changed(number, call)
        if raw == "detach":
            self.detached[id(call.out)] = call.out, args[0]
        if self.log:
            self.calls[number], self.parents[number] = call, parents
            self.places[number] = self._place()
        return call.out if target is None else target.copy_(call.out), call

    def _undetached(self, args: Sequence[Any]) -> dict[int, Any]:
        known = {index: self.detached.get(id(argument)) for index, argument in enumerate(args)}
        return {index: pair[1] for index, pair in known.items() if pair is not None}

    def _changed(self, number: int, call: Call) -> Any:
        chosen = self.chosen[number]
        if (number, chosen) in self.solved:
            return self.solved[number, chosen](call)
        return next(value() for title, value in self.changes(call) if title == chosen)

    @staticmethod
    def _same(call: Call, function: Any, args: Sequence[Any]) -> bool:
        shapes = [
            [getattr(argument, "shape", None) for argument in arguments]
            for arguments in (call.args, args)
        ]
        return call.asked is function and shapes[0] == shapes[1]

    def _of(self, tree: Any) -> set[int]:
        if not self.log:
            return set()
        tensors = [
            leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)
        ]
        return set[int]().union(*(self.producers[id(tensor)] for tensor in tensors))

    def produced(self, tree: Any, calls: set[int]) -> None:
        """Record the numbers of the calls that computed the tensors in `tree`."""
        for leaf in torch.utils._pytree.tree_leaves(tree) if self.log else ():
            if isinstance(leaf, torch.Tensor):
                self.producers[id(leaf)] = calls
                self.alive.append(leaf)

    def region(self, tree: Any) -> list[int]:
        """Return the numbers of the recorded calls that led to the tensors in `tree`, latest
        first.
        """
        region, waiting = set[int](), self._of(tree)
        while waiting:
            region |= waiting
            waiting = set[int]().union(*(self.parents[number] for number in waiting)) - region
        return sorted(region, reverse=True)

    def _place(self) -> str:
        where = layer = ""
        for frame, line in traceback.walk_stack(sys._getframe(3)):
            file = frame.f_code.co_filename
            if _is_above(file) or (where and layer):  # a Sequential runs no file of the user's
                break
            if not where and not file.startswith(_INSIDE):
                where = f"{os.path.basename(file)}:{line}"
            layer = layer or self.names.get(id(frame.f_locals.get("self")), "")
        return f"{where} ({layer})".strip() if layer else where or "the reference"
