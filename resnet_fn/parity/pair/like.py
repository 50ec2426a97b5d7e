"""Name the reference's arrays and settings as the port does."""

from collections.abc import Mapping

from resnet_fn.parity.pair.name_map import GRADIENT_KIND, NameMap
from resnet_fn.parity.trace.constants import changed_arrays
from resnet_fn.parity.trace.data import DECAY_SETTING, Run, Trace
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.small import SmallTrace
from resnet_fn.parity.trace.tree import Arrays


def like_of(reference: Trace, names: NameMap, optimizer: bool) -> Like:
    """Return what a port takes over from the reference.

    `optimizer` is whether the port has an optimizer of its own, which is also run alone.
    """
    run = reference.run
    last = {name: run.after[-1][name] for name in run.gradients} if run.after else {}
    # The random numbers of both sides must be equal, so they are drawn by the reference's names.
    shapes = {name: array.shape for name, array in run.gradients.items()} if optimizer else {}
    weights, gradients = made_up(shapes)
    return Like(
        start=names.rename(run.start),
        drawn=_drawn(run, names),
        last=names.rename(last),
        weights=names.rename(weights),
        gradients=names.rename(gradients, GRADIENT_KIND),
        decays=paired(reference.optimizer_settings.get(DECAY_SETTING, {}), names),
        train_outputs=run.train_outputs[0],
        # a small trace has no inputs of layers, from which masks get their shapes
        dropping=((), ()) if isinstance(reference, SmallTrace) else reference.dropping,
        losses=frozenset(reference.losses_alone),
        layers=names.layers,
    )


def _drawn(run: Run, names: NameMap) -> Arrays:
    """Return the port's arrays that have random numbers in the reference's run with such numbers."""
    drawn: Arrays = {}
    for drawn_run in run.drawn:
        changed = {*changed_arrays(run.start, drawn_run.start)}
        for name, array in names.rename(drawn_run.start).items():
            if changed & {*names.sources(name)}:
                drawn[name] = array
    return drawn


def paired(numbers: Mapping[str, float], names: NameMap) -> dict[str, float]:
    """Map the port's parameters to a setting of the reference.

    Parameters with no number or several numbers are left out.
    """
    settings = {
        name: {numbers[source] for source in names.sources(name) if source in numbers}
        for name in names.parameters
    }
    return {name: values.pop() for name, values in settings.items() if len(values) == 1}
