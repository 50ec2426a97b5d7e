"""A mode that notes what no number of the reference has reached: limits of functions, conditions,
ends of slices.
"""

import contextlib
import linecache
import math
import os
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import numpy as np
import torch

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record import torch_decisions
from resnet_fn.parity.record.common import is_of_user
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_decisions import (
    PACKAGE,
    TORCH,
    Call,
    caller_outside,
    place_of_frame,
)
from resnet_fn.parity.record.torch_module import call, not_given, tensors
from resnet_fn.parity.record.torch_run import (
    Loss,
    arrays_outside_module,
    outputs_outside_loss,
)
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Batch, leaves, split

# Functions that limit numbers → the names of their arguments after the first.
_LIMITED = {
    "clamp": ("min", "max"),
    "clip": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "normalize": ("p", "dim", "eps"),
}

# Functions whose limits are fixed. Layers have lines of their own, so only calls by the user count.
_FIXED = {"relu": {"min": 0}, "relu6": {"min": 0, "max": 6}, "abs": {"min": 0}}

# Functions that choose between numbers → the place of the condition among their arguments.
_CHOOSE = {"where": 0, "masked_fill": 1, "__bool__": 0}

# Functions whose result is a condition, which may choose in another way: as a factor, an index.
_COMPARE = {
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "all",
    "any",
    "isin",
    "isnan",
    "isinf",
    "isfinite",
    "isclose",
    "logical_and",
    "logical_or",
    "logical_xor",
}

# Functions that treat NaN, and for some infinities, in another way.
_OF_NAN = {"nan_to_num", "nansum", "nanmean", "nanmedian", "nanquantile"}

# Functions of two tensors that return one of both numbers.
_ONE_OF_TWO = {"min", "max", "minimum", "maximum", "fmin", "fmax"}

_WRAPS = {"remainder", "fmod", "mod"}  # a number below the divisor stays as it is
_PARTS = {"floor_divide", "floordiv"}  # a number below the divisor becomes 0

_LOOK_UP = {"embedding", "embedding_bag"}  # functions of ids and a table

_IGNORED = -100  # what PyTorch's losses ignore by default

# PyTorch's functions that only pass a call on to a mode.
_PASSING = [
    os.path.join(TORCH, "overrides.py"),
    os.path.join(TORCH, "_tensor.py"),
    os.path.join(TORCH, "functional.py"),
    os.path.join(TORCH, "nn", "functional.py"),
]


class Limits(torch.overrides.TorchFunctionMode):
    """A context manager that notes unused limits, such as `clamp(min=1e-12)` if all numbers are 0
    or above 1e-12, and conditions of the user's code that are always true or always false.

    `batch` is one of the updates, each in `micro_batches` parts.
    """

    def __init__(self, batch: Batch, micro_batches: int = 1) -> None:
        super().__init__()
        # whether labels may be meant to have −100, which PyTorch's losses ignore by default
        self._may_ignore = any(_has_positions(leaf) for _, leaf in leaves(batch[1]))
        sizes = [len(leaf) for _, leaf in leaves(batch) if np.ndim(leaf)]
        self._samples = min(sizes, default=0) // micro_batches
        self.reached: dict[str, bool] = {}
        self.has_padding_row = False  # whether a row of a table is not trained: see `Lookups`
        # the values of the conditions of each place, by the function
        self._conditions: dict[str, dict[str, set[bool]]] = {}
        self._notes: dict[str, Callable[[Call, str], None]] = {
            **dict.fromkeys(_FIXED, self._note_fixed),
            **dict.fromkeys(_ONE_OF_TWO, self._note_either),
            "getitem": self._note_slices,
            "setitem": self._note_slices,
            "split": self._note_split,
            "topk": self._note_topk,
        }

    @property
    def lines(self) -> list[str]:
        """A line for each limit that changes no number except 0, such as "net.py:31, clamp: nothing
        below 1e-12", and for each place of a condition that has one value only.
        """
        lines = [line for line, reached in self.reached.items() if not reached]
        for location, conditions in self._conditions.items():
            constant = [name for name, values in conditions.items() if len(values) == 1]
            # the function that a comparison is for comes first
            constant.sort(key=lambda name: name not in _CHOOSE)
            if not constant:
                continue
            name = constant[0]
            suffix = "" if name == "__bool__" else f" ({name})"
            (value,) = conditions[name]
            word = str(value).lower()
            lines.append(f"{location}{suffix}: a condition is always {word}")
        return lines

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        call = Call(getattr(function, "__name__", ""), args, kwargs or {})
        if function is torch.Tensor.backward and len(args) == 1 and not any(call.kwargs.values()):
            return self._backward(*args)
        if not args or torch_decisions.is_in_vmap():
            return function(*args, **call.kwargs)
        with contextlib.suppress(Exception):  # of a tensor without numbers, for example
            self._note(call, function)
        result = function(*args, **call.kwargs)
        with contextlib.suppress(Exception):
            self._note_result(call, result)
        return result

    def _backward(self, loss: torch.Tensor) -> None:
        """Compute gradients, and note what hooks and backward functions of the user's call.

        PyTorch's own `backward` passes the call to a mode with this mode off, so the engine is
        called here.
        """
        engine = torch.autograd.Variable._execution_engine
        ones = torch.ones_like(loss)
        with self:
            engine.run_backward(
                (loss,), (ones,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )

    def _note(self, call: Call, function: Any) -> None:
        """Note what the arguments of a call show. The call may write into them."""
        if call.plain in _LOOK_UP and call.kwargs.get("padding_idx") is not None:
            table = call.args[1]
            self.has_padding_row |= bool(table.requires_grad)
        if call.plain in _LIMITED:
            self._note_limits(call)
        elif call.plain in ("cross_entropy", "nll_loss"):
            self._note_ignored(call)
        elif call.plain in (*_CHOOSE, *_OF_NAN):
            index = 1 if function is torch.Tensor.where else _CHOOSE.get(call.plain)
            self._note_condition(call, index)
        else:
            name = call.plain.strip("_")
            note = self._notes.get(name)
            frame = _user_frame() if note else None
            if note and frame:
                location = place_of_frame(frame)
                note(call, f"{location}, {name}")

    def _note_result(self, call: Call, result: Any) -> None:
        """Note what the result of a call shows."""
        name = call.plain.strip("_")
        if name not in (*_COMPARE, *_WRAPS, *_PARTS):
            return
        frame = _user_frame()
        if frame is None:
            return
        location = place_of_frame(frame)
        if name in _WRAPS:
            wrapped = result != call.args[0]
            self._reach(f"{location}, {name}: no number wraps", wrapped)
        elif name in _PARTS:
            self._reach(f"{location}, {name}: always 0", result != 0)
        elif not _is_check(frame):
            self._add_condition(location, name, result)

    def _note_limits(self, call: Call) -> None:
        x = call.args[0]
        arguments = dict(zip(_LIMITED[call.plain], call.args[1:], strict=False)) | call.kwargs
        if call.plain == "normalize":
            x = x.norm(arguments.get("p", 2.0), arguments.get("dim", 1))
            arguments["min"] = arguments.get("eps", 1e-12)
        location = _if_of_user(caller_outside((TORCH, torch_decisions.__file__, __file__)))
        if location:
            self._compare_limits(f"{location}, {call.plain}", x, arguments)

    def _note_fixed(self, call: Call, location: str) -> None:
        self._compare_limits(location, call.args[0], _FIXED[call.plain])

    def _compare_limits(self, location: str, x: torch.Tensor, limits: dict[str, Any]) -> None:
        for end, word in (("min", "below"), ("max", "above")):
            limit = limits.get(end)
            if limit is None:
                continue
            beyond = x < limit if end == "min" else x > limit
            shown = f"{limit:g}" if isinstance(limit, int | float) else "a tensor"
            self._reach(f"{location}: nothing {word} {shown}", beyond & (x != 0))

    def _note_ignored(self, call: Call) -> None:
        ignored = call.kwargs.get("ignore_index", _IGNORED)
        labels = call.args[1] if len(call.args) > 1 else call.kwargs["target"]
        location = _if_of_user(caller_outside((TORCH, torch_decisions.__file__, __file__)))
        whole = labels if labels._base is None else labels._base
        several = self._may_ignore or _has_positions(whole.detach().numpy())
        # A column of several labels has a number for each sample, of which losses alone get up to
        # twice as many.
        of_positions = several and labels.numel() > 2 * self._samples
        by_default = of_positions and not labels.is_floating_point()
        if location and (ignored != _IGNORED or by_default):
            line = f"{location}, {call.plain}: no label is {ignored}, which it ignores"
            self._reach(line, labels == ignored)

    def _note_either(self, call: Call, location: str) -> None:
        """Note which of two tensors the results come from."""
        x, *others = *call.args, *call.kwargs.values()
        if len(others) != 1 or not isinstance(others[0], torch.Tensor):
            return
        smaller = x < others[0]
        larger = x > others[0]
        of_first, of_second = (smaller, larger) if "min" in call.plain else (larger, smaller)
        self._reach(f"{location}: its argument 1 never decides", of_first)
        self._reach(f"{location}: its argument 2 never decides", of_second)

    def _note_slices(self, call: Call, location: str) -> None:
        """Note whether slices such as [:512] or [-512:] leave anything out."""
        x, index = call.args[:2]
        items = list(index) if isinstance(index, tuple) else [index]
        for number, axis, item in _slices(items, x.ndim):
            size = x.shape[axis]
            line = f"{location}: slice {number} leaves nothing out"
            if item.stop is not None and item.stop > 0:
                self._note_size(line, size, item.stop)
            if item.start is not None and item.start < 0:
                self._note_size(line, size, -item.start)

    def _note_split(self, call: Call, location: str) -> None:
        arguments = dict(zip(("x", "size", "dim"), call.args, strict=False)) | call.kwargs
        size = arguments.get("size")
        if isinstance(size, int):
            axis = arguments.get("dim", 0)
            self._note_size(f"{location}: always one part", arguments["x"].shape[axis], size)

    def _note_topk(self, call: Call, location: str) -> None:
        arguments = dict(zip(("x", "k", "dim"), call.args, strict=False)) | call.kwargs
        axis = arguments.get("dim", -1)
        self._reach(f"{location}: it takes all", arguments["k"] < arguments["x"].shape[axis])

    def _note_size(self, line: str, size: int, limit: int) -> None:
        """Note whether a size is beyond a limit. A size that is the limit may be meant to be."""
        if size != limit:
            self._reach(line, size > limit)

    def _note_condition(self, call: Call, index: int | None) -> None:
        """Note the condition in a call that the user's code makes itself, or whether there is NaN.

        `index` is the place of the condition among the arguments.
        """
        # what a function of PyTorch's calls in turn is no condition of the user's code
        frame = _caller(())
        location = _if_of_user(frame)
        if not location or frame is None:
            return
        if call.plain in _OF_NAN:
            line = f"{location}, {call.plain}: every number is finite"
            self._reach(line, ~torch.isfinite(call.args[0]))
        elif index is not None and len(call.args) > index:
            if not is_of_user(frame.f_code.co_filename):
                return
            if call.plain == "__bool__" and _is_check(frame):
                return
            self._add_condition(location, call.plain, call.args[index])

    def _add_condition(self, location: str, name: str, condition: Any) -> None:
        if getattr(condition, "dtype", None) != torch.bool or not condition.numel():
            return
        conditions = self._conditions.setdefault(location, {})
        seen = conditions.setdefault(name, set())
        seen.add(bool(condition.any()))
        seen.add(bool(condition.all()))

    def _reach(self, line: str, reached: torch.Tensor | bool) -> None:
        """Note that a line is not needed if any number has reached what it is about."""
        before = self.reached.get(line, False)
        self.reached[line] = before or bool(torch.as_tensor(reached).any())


class Lookups(torch.overrides.TorchFunctionMode):
    """A context manager that notes whether the row of a `padding_idx` is ever looked up, by the
    user's calls and by the embeddings of a module. They pass this row no gradient.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._layers = {
            id(parameter): name.rpartition(".")[0] for name, parameter in module.named_parameters()
        }
        self._looked_up: dict[str, bool] = {}

    @property
    def lines(self) -> list[str]:
        """A line for each such row that no id names, as in "embed: no id is 0, …"."""
        return [line for line, looked_up in self._looked_up.items() if not looked_up]

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        call = Call(getattr(function, "__name__", ""), args, kwargs or {})
        if call.plain in _LOOK_UP:
            with contextlib.suppress(Exception):
                self._note(call)
        return function(*args, **call.kwargs)

    def _note(self, call: Call) -> None:
        padding = call.kwargs.get("padding_idx")
        ids, table = call.args[:2]
        if padding is None or not table.requires_grad:
            return
        row = padding % len(table)
        frame = _user_frame()
        layer = self._layers.get(id(table)) or call.plain
        where = f"{place_of_frame(frame)}, {call.plain}" if frame else layer
        line = f"{where}: no id is {row}, to whose row it passes no gradient"
        before = self._looked_up.get(line, False)
        self._looked_up[line] = before or bool((ids == row).any())


def padding_not_looked_up(module: torch.nn.Module, plan: Plan) -> list[str]:
    """Return a line for each row of a `padding_idx` that the updates do not look up.

    Probes do not count: they look up every id, but train nothing.
    """
    module = copied(module).train()
    lookups = Lookups(module)
    # a row that a failing pass has not looked up keeps its line
    with contextlib.suppress(Exception), torch.random.fork_rng():
        for batch in plan.batches:
            for inputs, _ in split(tuple(batch), plan.accumulate):
                arguments = tensors(inputs, torch.float32)
                with lookups:
                    call(module, arguments)
            if not lookups.lines:  # all rows are looked up
                break
    return lookups.lines


def not_reached(module: torch.nn.Module, plan: Plan, loss: Loss, limits: Limits) -> list[str]:
    """Return the arrays beside the net's parameters that gradients reach, the outputs on a batch that it does not
    depend on, the limits that no number has reached, rows of embeddings that would not train, and
    the arguments that are not given, a line each.
    """
    lines = []
    arrays, outside = list[torch.Tensor](), list[str]()
    with contextlib.suppress(Exception):  # the verdict does not need this line
        arrays = arrays_outside_module(module, plan.first, loss)
    with contextlib.suppress(Exception):
        outside = outputs_outside_loss(module, plan.first, loss)
    if arrays:
        shapes = first_few([list(array.shape) for array in arrays])
        lines.append(
            f"gradients reach arrays that are no parameters of the net ({shapes}) and are not "
            "compared; if they are trained, make them parameters of the net, else freeze them"
        )
    if outside:
        message = "the loss does not depend on these outputs, so their gradients are not compared"
        lines.append(f"{message}: {first_few(outside)}")
    lines += limits.lines
    if limits.has_padding_row:
        lines += padding_not_looked_up(module, plan)
    inputs, _ = plan.first
    left = not_given(module, inputs)
    if left:
        lines.append(f"arguments that are not given: {', '.join(left)}")
    return lines


def _has_positions(labels: np.ndarray | None) -> bool:
    """Return whether labels are integers, and several of them in a sample. None: no labels."""
    if labels is None:
        return False
    return labels.dtype.kind in "iu" and math.prod(labels.shape[1:]) > 1


def _slices(items: list[Any], axes: int) -> list[tuple[int, int, slice]]:
    """Return the slices of an index with their number in it and their axis."""
    slices = []
    axis = 0
    for number, item in enumerate(items):
        if item is Ellipsis:
            after = items[number + 1 :]
            axis = axes - sum(map(_axes_of, after))
        elif isinstance(item, slice):
            slices.append((number + 1, axis, item))
            axis += 1
        else:
            axis += _axes_of(item)
    return slices


def _axes_of(item: Any) -> int:
    """Return how many axes an item of an index takes."""
    if item is None:
        return 0
    is_mask = isinstance(item, torch.Tensor) and item.dtype == torch.bool
    return item.ndim if is_mask else 1


def _is_check(frame: FrameType) -> bool:
    """Return whether a condition is only checked: by `assert`, or by an `if` that raises."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    this, following = (linecache.getline(file, number).strip() for number in (line, line + 1))
    return this.startswith("assert") or ": raise " in this or following.startswith("raise")


def _user_frame() -> FrameType | None:
    """Return the frame of the call that a mode sees, or None if the user's code does not make it
    itself.
    """
    frame = _caller(_PASSING)
    return frame if frame is not None and is_of_user(frame.f_code.co_filename) else None


def _caller(passing: Collection[str]) -> FrameType | None:
    """Return the frame of the call that this mode sees, without other modes and functions in the
    files `passing`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        passes = code.co_filename == __file__ or code.co_filename in passing
        if not passes and code.co_name != "__torch_function__":
            break
        frame = frame.f_back
    return frame


def _if_of_user(frame: FrameType | None) -> str:
    """Return the place of a frame; "" if it is not in the user's code."""
    if frame is None or frame.f_code.co_filename.startswith((TORCH, PACKAGE)):
        return ""
    return place_of_frame(frame)
