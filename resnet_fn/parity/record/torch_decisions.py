"""Decisions of PyTorch's functions: results such as x > 0, x.long() or x.argmax(), which do not
change little by little.

Rounding either leaves such a result or changes it altogether: then its operand is a tie. Under
noise and in float64, decisions are those of the run in float32, so that a tie lends nothing to
other arrays. Ties are listed, and a run in which they are decided otherwise shows what they change.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch

# the folders of PyTorch's code and of this package's
TORCH = os.path.dirname(torch.__file__)
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))

# Functions whose result is of type float, but a step function of the operand.
_STEPS = {"floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "heaviside", "floor_divide"}
_STEPS |= {"__floordiv__", "__rfloordiv__"}

# Functions whose result jumps back by a period.
_WRAPS = {"remainder", "fmod", "frac", "__mod__", "__rmod__"}

# Functions that give Python a number of a tensor, on which Python decides.
_READ = {"__int__", "__bool__", "__index__", "is_nonzero", "equal", "allclose", "item"}

# Functions that put numbers into an order: a tie exchanges several elements of a result.
_ORDERS = {"topk", "sort", "argsort", "msort", "kthvalue", "median", "nanmedian", "mode"}

# Functions on whose results rounding has no influence.
_SURE = {"isnan", "isinf", "isfinite", "isposinf", "isneginf"}


def caller_outside(files: tuple[str, ...]) -> FrameType | None:
    """Return the innermost frame, from the caller of the function that asks on, whose file is not
    among `files` or in their folders.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(files):
        frame = frame.f_back
    return frame


def place_of_frame(frame: FrameType) -> str:
    """Return the place of a frame, such as "net.py:12"."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def user_place() -> str:
    """Return the place in the user's code that called torch."""
    frame = caller_outside((TORCH, PACKAGE))
    return place_of_frame(frame) if frame is not None else "a call"


class Decision(NamedTuple):
    """One decision of a run without noise: the tensor (or number) that was decided."""

    name: str
    result: Any


class Call(NamedTuple):
    """A call of a torch function, as a function mode sees it."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def in_place(self) -> bool:
        """Whether the call writes its result into its first argument."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def plain(self) -> str:
        """The function's name without the mark of a call in place."""
        return self.name.rstrip("_") if self.in_place else self.name

    @property
    def can_tie(self) -> bool:
        """Whether an operand has a fraction, or is too large for one: others do not round."""
        if self.plain in _SURE:
            return False
        return any(_has_fraction(leaf) for leaf in self._operands())

    def _operands(self) -> list[Any]:
        leaves: list[Any] = torch.utils._pytree.tree_leaves((self.args, self.kwargs))
        return leaves

    def decided(self, result: Any) -> Any:
        """Return the part of the result that is decided, or None if nothing is."""
        if self.name == "__deepcopy__":  # its memo has all tensors that were copied so far
            return None
        part = self._step_of(result)
        if part is None or is_in_vmap():
            return None
        # without rounding there is nothing to decide
        return part if any(map(is_float, self._operands())) else None

    def _step_of(self, result: Any) -> Any:
        """Return the part of the result that changes by steps, or None if nothing does."""
        if _is_whole(result):
            return result
        if self.plain in _READ and isinstance(result, int | float):
            return result
        steps = self.plain in _STEPS or self.plain in _WRAPS
        if self.kwargs.get("rounding_mode") is not None:
            steps = True
        if steps and is_float(result):
            return result.detach()
        if not isinstance(result, tuple):
            return None
        indices = getattr(result, "indices", None)
        return indices if _is_whole(indices) else None

    def with_decided(self, result: Any, decided: Any) -> Any:
        """Return the result with another decision, but with the present numbers."""
        if isinstance(result, tuple):
            return _gathered(self, result, decided)
        if self.plain in _WRAPS:
            period = self._period()
            turns = (decided - result.detach()) / period
            decided = result + torch.nan_to_num(turns.round()) * period
        if isinstance(result, torch.Tensor):  # in a run in float64, it is wider
            decided = decided.to(result.dtype)
        if self.in_place:
            with torch.no_grad():
                result.copy_(decided)
            return result
        return decided.clone() if isinstance(decided, torch.Tensor) else decided

    def _period(self) -> Any:
        """Return the number by which the result of a function in `_WRAPS` jumps."""
        if self.plain == "__rmod__":
            return self.args[0]
        if len(self.args) > 1:
            return self.args[1]
        return self.kwargs.get("other", 1.0)


def _gathered(call: Call, result: Any, indices: torch.Tensor) -> Any:
    """Return (values, indices) with other indices, and the operand's numbers at them."""
    x = call.args[0] if call.args else call.kwargs["input"]
    position = 2 if call.plain in ("topk", "kthvalue") else 1
    dim = -1 if call.plain in _ORDERS else 0
    if len(call.args) > position:
        dim = call.args[position]
    dim = call.kwargs.get("dim", dim)
    lost = indices.dim() < x.dim()
    picked = torch.gather(x, dim, indices.unsqueeze(dim) if lost else indices)
    values = picked.squeeze(dim) if lost else picked
    return type(result)((values, indices.clone()))


def is_float(leaf: Any) -> bool:
    """Return whether a value is a tensor of floating-point numbers."""
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def is_in_vmap() -> bool:
    """Return whether a function of `torch.vmap` runs, in which numbers can be neither read nor
    drawn.
    """
    functorch = torch._C._functorch  # there is no public function
    levels = functorch.get_interpreter_stack() or []
    return any(level.key() == functorch.TransformType.Vmap for level in levels)


def _is_whole(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor):
        return False
    return not (leaf.is_floating_point() or leaf.is_complex())


def _has_fraction(leaf: Any) -> bool:
    if not is_float(leaf):
        return False
    return not bool(whole_numbers(leaf.detach()).all())


def whole_numbers(values: torch.Tensor) -> torch.Tensor:
    """Return which numbers have no fraction and are small enough for one. Complex ones have one."""
    if values.is_complex():
        return torch.zeros(values.shape, dtype=torch.bool)
    return (values == values.round()) & (values.abs() < 2**23)


class Decisions:
    """The decisions of a run in float32, and the ties among them.

    Use one object for a run with `note`, then for runs with `kept`, in float64 or under noise, then
    for one with `flipped`. Before each run, call `restart`. Runs make the same calls in the same
    order; where a run leaves that order, nothing more is replaced.
    """

    def __init__(self) -> None:
        self.noted: list[Decision] = []
        # index of a decision → (where float32 does not decide, the other result)
        self._other: dict[int, tuple[Any, Any]] = {}
        self._places: dict[int, str] = {}
        self.can_tie = False  # whether rounding may have an influence on a decision
        self.restart()

    def restart(self) -> None:
        """Begin a run."""
        self._next, self._lost = 0, False

    @property
    def lines(self) -> list[str]:
        """A line for each place in the user's code with ties, such as "net.py:12, long: 3 ties"."""
        counts: Counter[str] = Counter()
        for index, (mask, _) in self._other.items():
            counts[self._places[index]] += int(torch.as_tensor(mask).sum())
        lines = []
        for location, count in counts.items():
            word = "tie" if count == 1 else "ties"
            lines.append(f"{location}: {count} {word}")
        return lines

    def note(self, call: Call, result: Any) -> Any:
        """Note the decision of a run without noise."""
        decided = call.decided(result)
        if decided is not None:
            kept = decided.clone() if isinstance(decided, torch.Tensor) else decided
            self.noted.append(Decision(call.plain, kept))
            self._look(call, decided)
        return result

    def _look(self, call: Call, decided: Any) -> None:
        if not (self.can_tie or isinstance(decided, float)):
            self.can_tie = call.can_tie

    @property
    def has_ties(self) -> bool:
        """Whether noise has changed a decision."""
        return bool(self._other)

    def _same_call(self, call: Call, decided: Any) -> int | None:
        """Return the index of the noted decision, or None if the run has left the order."""
        index, self._next = self._next, self._next + 1
        if self._lost or index >= len(self.noted) or self.noted[index].name != call.plain:
            self._lost = True
            return None
        known = self.noted[index].result
        if getattr(known, "shape", None) != getattr(decided, "shape", None):
            self._lost = True
            return None
        return index

    def kept(self, call: Call, result: Any) -> Any:
        """Return the result under noise, with the decision of the run without noise."""
        decided = call.decided(result)
        index = None if decided is None else self._same_call(call, decided)
        if index is None:
            return result
        known = self.noted[index].result
        kept = call.with_decided(result, known)
        if isinstance(known, float):  # Python may do anything with it
            return kept
        self._look(call, decided)  # 0.3 · 10 has no fraction in float32, but in float64
        changed = decided != known
        if call.plain in _WRAPS:  # where it jumped, for noise alone changes it too
            changed = kept.detach() != decided
        if isinstance(decided, torch.Tensor):
            changed &= decided == decided  # not NaN
        if bool(torch.as_tensor(changed).any()):
            self._add_ties(index, call, changed, decided)
        return kept

    def _add_ties(self, index: int, call: Call, changed: Any, decided: Any) -> None:
        if index not in self._other:
            self._places[index] = f"{user_place()}, {call.plain}"
            self._other[index] = changed, decided
        elif call.plain not in _ORDERS and isinstance(decided, torch.Tensor):
            mask, other = self._other[index]
            self._other[index] = mask | changed, torch.where(changed, decided, other)

    def flipped(self, call: Call, result: Any) -> Any:
        """Return the result without noise, with every tie decided otherwise."""
        decided = call.decided(result)
        index = None if decided is None else self._same_call(call, decided)
        if index is None or index not in self._other:
            return result
        mask, other = self._other[index]
        if isinstance(decided, torch.Tensor):
            return call.with_decided(result, torch.where(mask, other, decided))
        return other


Replace = Callable[[Call, Any], Any]


class Deciding(torch.overrides.TorchFunctionMode):
    """A context manager that passes each result through one of the methods of `Decisions`."""

    def __init__(self, replace: Replace) -> None:
        super().__init__()
        self._replace = replace

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        return self._replace(Call(getattr(function, "__name__", ""), args, kwargs or {}), result)
