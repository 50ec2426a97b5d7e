"""Causes by search: change the reference, call by call, until it computes what the port computes. Needs PyTorch."""

import contextlib
import math
import os
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from resnet_fn.parity import changes as table
from resnet_fn.parity.layers.difference import norm
from resnet_fn.parity.layers.record import leaves
from resnet_fn.parity.stages import GRADIENTS, LOSS, TRAIN_FORWARD
from resnet_fn.parity.trace import Arrays, Wanted

_SECONDS = 20.0  # the most that a search takes
_FITS = 10.0  # a change explains what is within so many times the rounding
_LEAST = 2e-6  # the rounding, times `_FITS`, is at least this
_BEAM = 4  # so many of the best single changes are tried together with a second one
_CAUSES = 5  # the most that are sought, one after another
_RECENT = 14  # arrays of so many earlier calls are tried as arguments
Chosen = dict[int, str]  # the number of a call: its change, in words

_OWN = (
    os.path.dirname(torch.__file__),
    __file__,
    table.__file__,
    os.path.join(os.path.dirname(__file__), "torch_side.py"),
)
# Calls that are neither counted nor changed.
_SKIPPED = frozenset(
    word
    for words in (
        "__get__ __set__ size dim __len__ item is_floating_point type detach clone numel contiguous to",
        "float double requires_grad_ backward tolist __bool__ stride ndimension is_complex zero_ _assert",
        "__format__ __repr__ numpy is_nested __deepcopy__ cpu __int__ __float__ __index__ __reduce_ex__ __hash__ dropout new_zeros",
    )
    for word in words.split()
)
_RENAMED = {
    **dict.fromkeys(("truediv", "divide", "true_divide", "itruediv"), "div"),
    **dict.fromkeys(("rmatmul", "bmm", "mm"), "matmul"),
    **dict.fromkeys(("radd", "iadd"), "add"),
    **dict.fromkeys(("rmul", "imul", "multiply"), "mul"),
    **dict.fromkeys(("isub", "subtract"), "sub"),
    **{"invert": "logical_not", "bitwise_not": "logical_not", "swapaxes": "transpose", "view": "reshape"},
    **{"concat": "cat", "clip": "clamp"},
}


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
    """`scaled_dot_product_attention`, call by call."""
    scale = more.get("scale")
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.softmax(scores, -1) @ value


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


class _DoneError(Exception):
    """The array that is asked for has been computed."""


class _Calls(TorchFunctionMode):
    """Inside, torch calls are numbered, and those in `chosen` changed.

    Args:
        changes: the changes of a call.
        base: a run that kept its calls; those before the first that is changed otherwise give what they gave there.
        log: keep each call, and what it depends on.
    """

    def __init__(
        self, changes: Any, chosen: Chosen, base: "_Calls | None", names: Mapping[int, str], log: bool
    ) -> None:
        super().__init__()
        self.changes, self.chosen, self.names, self.log, self.count = changes, chosen, names, log, 0
        self.calls: dict[int, table.Call] = {}
        self.places: dict[int, str] = base.places if base is not None else {}  # file and line, and the layer
        self.parents: dict[int, set[int]] = {}  # of each call: the calls that gave its arguments
        self.producers: dict[int, set[int]] = defaultdict(set)  # of each tensor, by its id: the calls that gave it
        self.alive: list[Any] = []  # else an id would be given again
        self.in_place, self.of_forward = False, 0  # whether a call writes into its argument; calls of the module
        self.others: list[tuple[str, Any]] = []
        reused = base is not None and not base.in_place and not torch.is_grad_enabled()
        self.base = base.calls if base is not None and reused else {}
        self.first = min(set(chosen) - set(base.chosen if base else ()), default=0)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _OPENED:
            with self:
                return _OPENED[function](*args, **kwargs)
        raw = getattr(function, "__name__", "")
        if raw in _SKIPPED:
            out = function(*args, **kwargs)
            self.produced(out, self._of((args, kwargs)))
            return out
        self.count += 1
        number, target = self.count, None
        if number < self.first and number in self.base:
            call = self.base[number]
            out = call.out
        else:
            if raw.endswith("_") and not raw.endswith("__"):
                target, function = args[0], getattr(torch.Tensor, raw[:-1], None) or getattr(torch, raw[:-1])
            elif raw in ("__iadd__", "__imul__", "__isub__", "__itruediv__"):
                target, function = args[0], getattr(torch.Tensor, raw.replace("__i", "__"))
            elif kwargs.get("inplace"):
                target, kwargs = args[0], {**kwargs, "inplace": False}
            self.in_place |= target is not None or raw == "__setitem__"
            parents = self._of((args, kwargs))
            args = (target.clone(), *args[1:]) if target is not None else args
            call = table.Call(
                _name(function), function, args, kwargs, function(*args, **kwargs), self.others[-_RECENT:]
            )
            if number in self.chosen:
                call.out = next(value() for words, value in self.changes(call) if words == self.chosen[number])
            out = call.out if target is None else target.copy_(call.out)
            if self.log:
                self.calls[number], self.parents[number] = call, parents
                self.places[number] = self._place()
        if table.is_float(out) and out.ndim > 1:
            self.others.append((f"the {call.name} of {self.places.get(number, '')}", out))
        self.produced(args[0] if raw == "__setitem__" else out, {number})
        return out

    def _of(self, tree: Any) -> set[int]:
        tensors = [one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)]
        return set[int]().union(*(self.producers[id(one)] for one in tensors)) if self.log else set()

    def produced(self, tree: Any, calls: set[int]) -> None:
        """Note which calls gave tensors."""
        for leaf in torch.utils._pytree.tree_leaves(tree) if self.log else ():
            if isinstance(leaf, torch.Tensor):
                self.producers[id(leaf)] = calls
                self.alive.append(leaf)

    def region(self, tree: Any) -> list[int]:
        """The calls on which tensors depend, except through layers that agree."""
        found, waiting = set[int](), self._of(tree)
        while waiting:
            found |= waiting
            waiting = set[int]().union(*(self.parents[one] for one in waiting)) - found
        return sorted(found, reverse=True)

    def _place(self) -> str:
        frame: Any = sys._getframe(2)
        where = layer = ""
        while frame is not None and not (where and layer):
            file = frame.f_code.co_filename
            if not where and not file.startswith((*_OWN, "<")):
                where = f"{os.path.basename(file)}:{frame.f_lineno}"
            layer = layer or self.names.get(id(frame.f_locals.get("self")), "")
            frame = frame.f_back
        return f"{where} ({layer})" if layer else where


class Searcher:
    """Searches for changes of a module's calls that give our arrays.

    Args:
        module: the reference; its weights are those of both sides.
        forward: runs it, in training mode or not, and returns its outputs.
        backward: loss and gradients of the first batch.
        seconds: the most that a search takes.
    """

    def __init__(
        self, module: Any, forward: Callable[[bool], Any], backward: Callable[[], Arrays], seconds: float = _SECONDS
    ) -> None:
        self.module, self.forward, self.backward, self.seconds = module, forward, backward, seconds
        self.names = {id(layer): name for name, layer in module.named_modules() if name}

    def __call__(self, wanted: Wanted) -> list[str]:
        """The causes, a line each, with the reference's file and line; [] if none is found."""
        self.wanted, self.until = wanted, time.perf_counter() + self.seconds
        chosen: Chosen = {}
        found: dict[str, list[str]] = {}  # changes, and the places of each
        while len(found) < _CAUSES:
            run, name, value = self._run(chosen, log=True)
            fit = self._fit(chosen, run, name, value, set(found)) if self._error(name, value) > 1 else {}
            for number, words in fit.items():
                found.setdefault(words, []).append(run.places[number])
            chosen |= fit
            if not fit:
                break
        more = {words: f" (and {len(places) - 1} more calls)" * (len(places) > 1) for words, places in found.items()}
        lines = [f"{places[0]}: {words} here{more[words]}" for words, places in found.items()]
        late = time.perf_counter() > self.until
        return [*lines, *[f"the search for a cause stopped after {self.seconds:g} s"] * late]

    def _run(
        self, chosen: Chosen, base: _Calls | None = None, name: str | None = None, log: bool = False
    ) -> tuple[_Calls, str, Any]:
        """A run with calls changed, up to the layer `name`, or to the first that differs: its name and its output.

        The name is "" for what the whole gives.
        """
        wanted = self.wanted
        of_loss = wanted.stage in (LOSS, GRADIENTS)
        counts, stopped, handles = defaultdict[str, int](int), list[tuple[str, Any]](), list[Any]()

        def hook(title: str) -> Callable[..., None]:
            def after(layer: Any, inputs: Any, output: Any) -> None:
                counts[title] += 1
                call = title if counts[title] == 1 else f"{title} ({counts[title]})"
                first = next((leaf for _, leaf in leaves(output) if isinstance(leaf, torch.Tensor)), None)
                if call not in wanted.layers or first is None or (name is not None and name != call):
                    return
                if name is not None or self._error(call, first) > 1:
                    stopped.append((call, first))
                    raise _DoneError
                run.produced(first, set())

            return after

        with contextlib.nullcontext() if of_loss else torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            run = _Calls(
                table.gradient_changes if wanted.stage == GRADIENTS else table.changes, chosen, base, self.names, log
            )

            def given(layer: Any, inputs: Any, named: Any) -> None:
                arrays = [leaf for _, leaf in leaves((inputs, named)) if table.is_float(leaf)]
                run.others += [(f"input {index}", leaf) for index, leaf in enumerate(arrays)]

            handles.append(self.module.register_forward_pre_hook(given, with_kwargs=True))
            handles.append(self.module.register_forward_hook(lambda *_: setattr(run, "of_forward", run.count)))
            handles += [
                layer.register_forward_hook(hook(title)) for title, layer in self.module.named_modules() if title
            ]
            try:
                with run:
                    results = self.backward() if of_loss else self.forward(wanted.stage == TRAIN_FORWARD)
                return run, "", results
            except _DoneError:
                return run, *stopped[0]
            finally:
                for handle in handles:
                    handle.remove()

    def _error(self, name: str, value: Any) -> float:
        """How far a layer's output, or what the whole gives, is from ours, in units of what explains it."""
        if name:
            return _excess(value, *self.wanted.layers[name])
        arrays = self.wanted.convert(value)
        floor = 1e-3 * math.hypot(*(norm(array) for array, _ in self.wanted.results.values()))
        return max((_excess(arrays[one], *self.wanted.results[one], floor) for one in self.wanted.results), default=0.0)

    def _fit(self, chosen: Chosen, run: _Calls, name: str, value: Any, known: set[str]) -> Chosen:
        """The first change that gives our array: of one call, of alike calls, of two; `known` ones before others."""
        before, level = self._error(name, value), [(Chosen(), run, value)]
        for _ in range(2):
            closer: dict[str, tuple[float, Chosen]] = {}
            for first, logged, value in level:
                options = self._options(logged, name, value)
                for option in sorted(options, key=lambda option: not known.issuperset(option.values())):
                    if time.perf_counter() > self.until:
                        return {}
                    error = self._try({**chosen, **first, **option}, logged, name)
                    if error <= 1:
                        return {**first, **option}
                    if error < 0.9 * before:
                        closer.setdefault(f"{error:.4g}", (error, {**first, **option}))
            level = []
            for _, first in sorted(closer.values(), key=lambda one: one[0])[:_BEAM]:
                with contextlib.suppress(Exception):
                    logged, _, value = self._run({**chosen, **first}, name=name, log=True)
                    level.append((first, logged, value))
        return {}

    def _options(self, run: _Calls, name: str, value: Any) -> list[Chosen]:
        """Single changes that have an effect, then each at all alike calls, then other arguments."""
        if name or self.wanted.stage not in (LOSS, GRADIENTS):
            region = run.region(value)
        else:  # of the loss alone if outputs agree and it does not
            region = [n for n in reversed(run.calls) if n > run.of_forward or self.wanted.stage == GRADIENTS]
        singles, alike = list[Chosen](), defaultdict[tuple[str, str], Chosen](dict)
        for number in region:
            with contextlib.suppress(Exception):  # of a function with other arguments
                for words, changed in run.changes(run.calls[number]):
                    with contextlib.suppress(Exception):  # of a change that this call cannot have
                        if number not in run.chosen and self._has_effect(run.calls[number].out, changed()):
                            singles.append({number: words})
                            alike[run.calls[number].name, words][number] = words
        together = [group for group in alike.values() if len(group) > 1]
        last = [one for one in singles if table.OTHER in next(iter(one.values()))]
        return [*(one for one in singles if one not in last), *together, *last]

    def _has_effect(self, old: Any, new: Any) -> bool:
        pairs = zip(*(torch.utils._pytree.tree_leaves(one) for one in (old, new)), strict=True)
        return self.wanted.stage == GRADIENTS or any(a.shape != b.shape or not torch.equal(a, b) for a, b in pairs)

    def _try(self, chosen: Chosen, base: _Calls, name: str) -> float:
        try:
            _, _, value = self._run(chosen, base, name)
            return self._error(name, value)
        except Exception:  # what a change gives may fit nothing that follows
            return math.inf


def _excess(value: Any, ours: np.ndarray, rounding: float, floor: float = 0.0) -> float:
    """The error of an array, in units of what rounding explains."""
    a = value.detach().double().numpy() if isinstance(value, torch.Tensor) else np.asarray(value, np.float64)
    if a.shape != ours.shape:
        return math.inf
    finite = np.isfinite(a) & np.isfinite(ours)
    if not finite.any() and len(np.unique(ours)) < 2:  # fits anything
        return math.inf
    if not np.array_equal(a[~finite], ours[~finite], equal_nan=True):
        return math.inf
    return norm((a - ours)[finite]) / max(norm(ours[finite]), floor, 1e-30) / max(_LEAST, _FITS * rounding)
