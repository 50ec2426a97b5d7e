"""Which arrays are trained and which are one: what differs between two nets before anything is computed."""

from collections.abc import Collection, Iterable

from resnet_fn.parity.name_map import NameMap


def sharing_notes(names: NameMap, ours: Iterable[tuple[str, ...]]) -> list[str]:
    """Arrays that the reference shares between layers and that are copies here, a line each.

    Copies start equal and part with the first update. (What is shared here and not in the reference has no counterpart
    for the reference's second array, and is told with the names.)

    Args:
        names: which is which.
        ours: names of the MindSpore net that are one array.
    """
    shared = {name: group[0] for group in ours for name in group}
    notes = []
    for group in names.tied:
        own = [name for name, source in names.parameters.items() if set(source.names) & set(group)]
        copies = list(dict.fromkeys(shared.get(name, name) for name in own))
        if len(copies) > 1:
            notes.append(
                f"{copies[0]}: a copy of {', '.join(copies[1:])} here, one array in the reference "
                f"({' = '.join(group)}); share it"
            )
    return notes


def training_notes(names: NameMap, ours: Collection[str], theirs: Collection[str]) -> list[str]:
    """Parameters that an update changes in one of the nets only, a line each.

    Args:
        names: which is which.
        ours, theirs: names of the parameters that each net trains.
    """
    notes = []
    for name in names.parameters:
        here, there = name in ours, any(source in theirs for source in names.sources(name))
        if here != there:
            words = ("frozen", "trained")
            notes.append(f"{name}: {words[here]} here, {words[there]} in the reference")
    return notes
