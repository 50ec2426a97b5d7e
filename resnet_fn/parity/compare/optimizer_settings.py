"""Compare the settings of both optimizers for each parameter."""

from collections import defaultdict

from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import RATE, Settings
from resnet_fn.parity.trace.difference import DIFFERS, Difference, difference

_SAME = 1e-6  # relative: MindSpore keeps numbers in float32


def compare_settings(
    ours: Settings, theirs: Settings, names: NameMap
) -> tuple[list[Difference], list[str]]:
    """Compare the settings of both optimizers.

    Returns all comparisons, and lines about settings that differ.
    """
    differences: list[Difference] = []
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names.parameters if RATE in ours and RATE in theirs else ():
        updates = [
            name in ours[RATE],
            any(source in theirs[RATE] for source in names.sources(name)),
        ]
        if updates[0] != updates[1]:
            differences.append(difference(f"whether {name} is updated", *updates))
            groups[
                f"updated by the optimizer {'here' if updates[0] else 'in the reference'} only"
            ].append(name)
    for word in [word for word in ours if word in theirs]:
        for name, here in ours[word].items():
            for there in {
                theirs[word][source] for source in names.sources(name) if source in theirs[word]
            }:
                differences.append(difference(f"{word} of {name}", here, there, tolerance=_SAME))
                if differences[-1].verdict == DIFFERS:
                    groups[f"{word}: {here:.6g} here, {there:.6g} in the reference"].append(name)
    return differences, [
        f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()
    ]
