"""BatchNorm's moving statistics among workers."""

from collections.abc import Callable, Sequence

from mindspore import Parameter, ops

from resnet_fn.gradients import Reduce


def statistics_average(
    statistics: Sequence[Parameter], workers: int, all_reduce: Reduce | None
) -> Callable[[], None] | None:
    """The mean of BatchNorm's moving statistics over the workers, in place; None where there is nothing to do."""
    if all_reduce is None or not statistics:
        return None

    def average() -> None:
        # Every worker normalises with its own samples; one net is evaluated, saved and resumed, bit for bit.
        joined = all_reduce([ops.concat([parameter * (1.0 / workers) for parameter in statistics])])[0]
        start = 0
        for parameter in statistics:
            ops.assign(parameter, joined[start : start + parameter.shape[0]])
            start += parameter.shape[0]

    return average
