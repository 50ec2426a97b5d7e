"""How the parts of an update are put together: in one compiled function, or with the sums over the ranks outside.

MindSpore's 2.11 documentation announces the end of parallelism in compiled graphs for late 2026; collectives between
two of them need none. On 2 CPU workers both give equal bits.
"""

from collections.abc import Callable
from typing import Any

from resnet_fn.update.gradients import Reduce

Part = Callable[..., Any]
Compile = Callable[[Part], Part]


def in_one(source: Part, apply: Part, compiled: Compile) -> Part:
    """One function: (learning rate, rank values, *inputs of the source) → what `apply` returns.

    Args:
        source: (learning rate, *inputs) → sums, gradients.
        apply: (learning rate, rank values, sums, gradients) → the update's results.
        compiled: `mindspore.jit`, or what leaves a function as it is.
    """

    @compiled
    def finish(rate: Any, rank_values: Any, *inputs: Any) -> Any:
        return apply(rate, rank_values, *source(rate, *inputs))

    return finish


def in_three(source: Part, contribute: Part, all_reduce: Reduce, apply: Part, compiled: Compile) -> Part:
    """The same function, of two compiled ones; between them each tensor is summed over the ranks by a call of its own.

    Args:
        source, compiled: as in `in_one`.
        contribute: (rank values, sums, gradients) → what the ranks must add up.
        all_reduce: the sum over the ranks.
        apply: (learning rate, *summed) → the update's results.
    """

    @compiled
    def before(rate: Any, rank_values: Any, *inputs: Any) -> Any:
        return contribute(rank_values, *source(rate, *inputs))

    after = compiled(apply)

    def finish(rate: Any, rank_values: Any, *inputs: Any) -> Any:
        return after(rate, *all_reduce(before(rate, rank_values, *inputs)))

    return finish
