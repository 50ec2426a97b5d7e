"""The reference with every ReLU tie on its other side (`resnet_fn.parity.ties`)."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def flip_ties(width: float) -> Iterator[Callable[[], int]]:
    """Inside, every torch ReLU takes inputs x with |x| < width · rms(x) on the other side of 0.

    relu(x) becomes min(x, 0) there: the values hardly change, the gradients are 1 where they were 0 and 0 where 1.

    Yields:
        A function that returns how many ties there were so far.
    """
    import torch

    functional = torch.nn.functional
    relus = {functional.relu, functional.relu_, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_}
    count = 0

    class FlipTies(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            if function not in relus:
                return function(*args, **(kwargs or {}))
            x = args[0]
            values = x.detach()
            tie = values.abs() < width * values.square().mean().sqrt()
            count += int(tie.sum())
            above = torch.relu(x)  # whose gradient at 0 itself is 0
            return torch.where(tie, x - above, above)

    with FlipTies():
        yield lambda: count
