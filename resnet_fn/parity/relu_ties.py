"""What float32 cannot decide: on which side of 0 a ReLU's input lies that is within rounding of 0.

The ReLU's gradient jumps there, and with it every gradient below. Two faultless float32 nets may take different
sides, while PyTorch's own float32 happens to take those of its float64. How far apart the gradients may then be is
computed, not guessed: the reference runs in float64 once more, with every such input on its other side.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from resnet_fn.parity.layers import LayerDifference
from resnet_fn.runtime.extras import import_extra

_SIGMAS = 4.0


def nearness(layers: Sequence[LayerDifference]) -> float:
    """The distance from 0, relative to a layer's root mean square, that its values may be off by in float32.

    What either net is off by: values are off by several times the root mean square of the errors.
    """
    return _SIGMAS * max(
        (max(layer.output.relative, layer.output.rounding) for layer in layers if layer.mode == "train"), default=0.0
    )


@contextlib.contextmanager
def other_sides(nearness: float) -> Iterator[Callable[[], int]]:
    """Inside, every torch ReLU takes inputs x with |x| < nearness · rms(x) on the other side of 0.

    relu(x) becomes min(x, 0) there: the values hardly change, the gradients are 1 where they were 0 and 0 where 1.

    Yields:
        How many inputs there were so far.
    """
    torch = import_extra("torch", "the parity ladder")
    functional = torch.nn.functional
    kinds = {functional.relu, functional.relu_, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_}
    count = 0

    class OtherSides(torch.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined,unused-ignore]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            if function not in kinds:
                return function(*args, **(kwargs or {}))
            x = args[0]
            values = x.detach()
            near = values.abs() < nearness * values.square().mean().sqrt()
            count += int(near.sum())
            above = torch.relu(x)  # whose gradient at 0 itself is 0
            return torch.where(near, x - above, above)

    with OtherSides():
        yield lambda: count
