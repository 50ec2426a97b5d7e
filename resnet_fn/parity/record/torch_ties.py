"""Ties of ReLUs: inputs so near to the kink that rounding may move them to its other side.

Such a tie hardly changes the output, but turns its gradient from 0 to 1 or from 1 to 0.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.limits import SIGMAS

_functional = torch.nn.functional

_RELUS = {
    _functional.relu,
    _functional.relu_,
    torch.relu,
    torch.relu_,
    torch.Tensor.relu,
    torch.Tensor.relu_,
}

_LIMITED = (_functional.relu6, _functional.hardtanh)  # with two kinks

LEVELS = (2.0, 8.0, 32.0)
"""Widths of a tie, in units of the error of the ReLU's own input; the port's may be larger."""


class ReluInputs:
    """The inputs of a net's ReLUs in one forward pass, in the order of the calls, and their
    rounding.
    """

    def __init__(self) -> None:
        self._inputs: list[Any] = []
        self.roundings: list[float] = []  # relative errors against float64

    def keep(self) -> torch.overrides.TorchFunctionMode:
        """Return a mode that keeps the inputs of a run in float32."""
        return _OnRelu(lambda index, x: self._inputs.append(x.detach().clone()))

    def compare(self) -> torch.overrides.TorchFunctionMode:
        """Return a mode that compares the inputs of a run in float64, and forgets those kept."""

        def compare(index: int, x: torch.Tensor) -> None:
            kept = self._inputs[index] if index < len(self._inputs) else x.detach()
            error = relative_error(kept.double().numpy(), x.detach().double().numpy())
            self.roundings.append(error)
            if index < len(self._inputs):
                self._inputs[index] = None

        return _OnRelu(compare)


class _OnRelu(torch.overrides.TorchFunctionMode):
    """Calls a function with the number of each ReLU's call, and its input."""

    def __init__(self, visit: Callable[[int, torch.Tensor], None]) -> None:
        super().__init__()
        self._visit, self._count = visit, 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _RELUS or function in _LIMITED:
            self._visit(self._count, args[0] if args else (kwargs or {})["input"])
            self._count += 1
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def flip_ties(level: float, roundings: Sequence[float]) -> Iterator[Callable[[], int]]:
    """Treat the ties of ReLUs as inputs on the kink's other side, inside a `with` block.

    A tie is nearer to the kink than `SIGMAS` · `level` · (the rounding of this ReLU's own input),
    as a fraction of the input's root mean square. `roundings` has those of the ReLUs of one forward
    pass, in the order of the calls. Yields a function that counts the ties so far.
    """
    count, calls, depth = 0, 0, 0

    def enter(module: Any, inputs: Any) -> None:
        nonlocal calls, depth
        calls, depth = calls if depth else 0, depth + 1  # each forward pass of the net begins anew

    def leave(module: Any, inputs: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1

    def flipped(x: torch.Tensor, at: float, width: float) -> torch.Tensor:
        nonlocal count
        tie = (x.detach() - at).abs() < width * x.detach().square().mean().sqrt()
        count += int(tie.sum())
        above = torch.relu(x - at)  # its gradient at 0 is 0
        return torch.where(tie, x - at - above, above)

    class FlipTies(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal calls
            if function not in _RELUS and function not in _LIMITED:
                return function(*args, **(kwargs or {}))
            kwargs = kwargs or {}
            x = args[0] if args else kwargs["input"]
            # a call that only happens in evaluation mode, or in the loss, has no rounding of its
            # own
            own = roundings[calls] if calls < len(roundings) else max(roundings, default=0.0)
            width = SIGMAS * level * own
            calls += 1
            if function in _RELUS:
                return flipped(x, 0.0, width)
            least, most = 0.0, 6.0
            if function is _functional.hardtanh:
                least, most = kwargs["min_val"], kwargs["max_val"]
            return least + flipped(x, least, width) - flipped(x, most, width)

    with contextlib.ExitStack() as hooks:
        all_modules = torch.nn.modules.module
        before = all_modules.register_module_forward_pre_hook(enter)
        after = all_modules.register_module_forward_hook(leave, always_call=True)
        hooks.callback(before.remove)
        hooks.callback(after.remove)
        with FlipTies():
            yield lambda: count
