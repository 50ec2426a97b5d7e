"""ReLU ties: inputs of a ReLU within rounding of 0. On which side of 0 they lie, float32 cannot decide.

The ReLU's gradient jumps there, and with it every gradient below. Two faultless float32 nets may take different
sides, while PyTorch's own float32 happens to take those of its float64. How far apart the gradients may then be is
computed, not guessed: the reference runs in float64 once more, with every tie flipped to its other side.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from resnet_fn.parity.layers import LayerDifference

_SIGMAS = 4.0


def tie_width(layers: Sequence[LayerDifference]) -> float:
    """How far from 0 a tie may lie, relative to the root mean square of the ReLU's input.

    Values are off by up to several times the root mean square of the errors, of either net.
    """
    return _SIGMAS * max(
        (max(layer.output.relative, layer.output.rounding) for layer in layers if layer.mode == "train"), default=0.0
    )


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
