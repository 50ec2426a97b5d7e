"""BatchNorm's moving statistics among workers."""

from collections.abc import Callable, Sequence

from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.update.gradients import Reduce, each

_assign = ops.Assign()
# nn.BatchNorm's and mint.nn.BatchNorm's.
_STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


def is_statistic(path: str) -> bool:
    """Whether a parameter's name is that of a moving statistic."""
    return path.rsplit(".", 1)[-1] in _STATISTICS


def batchnorm_statistics(net: nn.Cell) -> tuple[Parameter, ...]:
    """The moving statistics, float32 [channels] each, that a training pass of a net changes.

    Other parameters without a gradient are frozen weights. A BatchNorm whose `use_batch_statistics` is False
    normalises by its moving statistics in training too, and never changes them.
    """
    frozen = {
        id(parameter)
        for _, cell in net.cells_and_names()
        if getattr(cell, "use_batch_statistics", None) is False
        for parameter in cell.get_parameters(expand=False)
    }
    return tuple(
        parameter
        for path, parameter in net.parameters_and_names()
        if is_statistic(path) and id(parameter) not in frozen
    )


def keeper(statistics: Sequence[Parameter]) -> tuple[Callable[[], None], Callable[[], None]]:
    """Copy the statistics; put the copies back.

    They change in the forward pass, before anyone knows whether the update is skipped, and a NaN would stay in them for
    good.
    """
    kept = tuple(Parameter(p.copy(), name=f"kept.{p.name}", requires_grad=False) for p in statistics)
    parameters = tuple(statistics)

    def keep() -> None:
        each(_assign, kept, parameters)

    def put_back() -> None:
        each(_assign, parameters, kept)

    return keep, put_back


def average_batchnorm(
    statistics: Sequence[Parameter], workers: int, all_reduce: Reduce | None, outside: bool = False
) -> tuple[Callable[[Tensor], None] | None, Callable[[], Tensor] | None]:
    """The mean of BatchNorm's moving statistics over the workers, in place.

    Every worker normalises with its own samples; one net is evaluated, saved and resumed, bit for bit.

    Args:
        statistics: of this worker, each a vector.
        workers: how many share an update.
        all_reduce: the sum over them; None: alone.
        outside: the sum is made elsewhere.

    Returns:
        average(summed): with `outside` of what the second function returns, summed over the ranks; otherwise it makes
        the sum itself, and does not look at its argument. And the second function: this worker's share, one vector.
        (None, None) where there is nothing to do.
    """
    if all_reduce is None or not statistics:
        return None, None

    sizes = [parameter.shape[0] for parameter in statistics]
    parameters = tuple(statistics)

    def part(parameter: Parameter) -> Tensor:
        return parameter * (1.0 / workers)

    def share() -> Tensor:
        return ops.concat(each(part, parameters))

    def spread(summed: Tensor) -> None:
        each(_assign, parameters, ops.split(summed, sizes))

    def average(_: Tensor) -> None:
        spread(all_reduce((share(),))[0])

    return (spread if outside else average), share
