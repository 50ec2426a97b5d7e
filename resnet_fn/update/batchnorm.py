"""BatchNorm's moving statistics among workers."""

from collections.abc import Callable, Sequence

from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import Reduce, each

_assign = ops.Assign()


def average_batchnorm(
    statistics: Sequence[Parameter], workers: int, all_reduce: Reduce | None
) -> Callable[[], None] | None:
    """The mean of BatchNorm's moving statistics over the workers, in place; None where there is nothing to do."""
    if all_reduce is None or not statistics:
        return None

    sizes = [parameter.shape[0] for parameter in statistics]
    parameters = tuple(statistics)

    def part(parameter: Parameter) -> Tensor:
        return parameter * (1.0 / workers)

    def average() -> None:
        # Every worker normalises with its own samples; one net is evaluated, saved and resumed, bit for bit.
        joined = all_reduce((ops.concat(each(part, parameters)),))[0]
        each(_assign, parameters, ops.split(joined, sizes))

    return average
