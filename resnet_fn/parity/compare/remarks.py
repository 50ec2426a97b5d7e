"""Lines about both sides beside the stages: settings that differ, and what was changed."""

import itertools

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.notes import (
    constant_notes,
    settings_notes,
    sharing_notes,
    with_frozen_norms,
)
from resnet_fn.parity.compare.outputs import buffers_without_counterpart
from resnet_fn.parity.compare.sides import Sides, at_most_decayed
from resnet_fn.parity.trace.data import RATE_SETTING
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.environment import environment_notes


def settings(sides: Sides) -> list[str]:
    """Return one line for each setting that differs, whether or not the numbers show it."""
    port, reference, names = sides.port, sides.reference, sides.names
    apart = {layer.name for layer in sides.layers if layer.output.verdict == DIFFERS}
    same = {layer.name for layer in sides.layers if layer.mode == "train"} - apart
    of_port = with_frozen_norms(port.layers)
    of_reference = with_frozen_norms(reference.layers)
    lines = settings_notes(of_port, of_reference, names.layers, same)
    lines += sharing_notes(names, port.tied)
    lines += constant_notes(port.attributes, reference.initial, names)
    return lines


def environment(sides: Sides) -> list[str]:
    """Return the versions and variables that differ, one line each."""
    return environment_notes(sides.port.environment, sides.reference.environment)


def changes(sides: Sides) -> list[str]:
    """Return what was changed or left out to make both sides comparable, one line each."""
    port, reference, names = sides.port, sides.reference, sides.names
    lines = list(dict.fromkeys([*reference.notes, *port.notes]))
    if (RATE_SETTING in port.optimizer_settings) != (RATE_SETTING in reference.optimizer_settings):
        lines.append(
            "both optimizers get the recipe's learning rates; rates that only one has are not "
            "compared"
        )
    paired = {*names.parameters, *itertools.chain(*port.tied)}
    left = [name for name in port.trainable if name not in paired]
    if left:
        lines.append(f"left out, since --map gives no counterpart: {first_few(left)}")
    lines += [line for _, line in buffers_without_counterpart(sides)]
    terms = "which trains each term separately, so that norms and updates differ"
    for name, source in names.parameters.items():
        if source.added:
            lines.append(f"{name}: {source} in the reference, {terms}")
    decayed = []
    for name in sides.compared.all:
        if name not in sides.without_gradient or not port.run.after:
            continue
        start, after = port.run.start[name], port.run.after[0][name]
        if (after != start).any() and at_most_decayed(start, after):
            decayed.append(name)
    if decayed:
        message = "this step applies weight decay without a gradient, but torch does not"
        lines.append(f"{message}: {first_few(decayed)}")
    return lines
