"""Compare which arrays start with the same random numbers, as copies of one layer do."""

from collections.abc import Iterable, Sequence

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.allowed import NO_TOLERANCE, within
from resnet_fn.parity.trace.constants import is_constant
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.layer import fingerprint
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays


def compare_clones(
    port: Arrays, reference: Arrays, shared: Iterable[Sequence[str]]
) -> tuple[list[Difference], list[str]]:
    """Compare the arrays that start as copies of another array, in one build of each side.

    `shared` groups names that are one array on either side, and so no copies.
    """
    of_port = _first_with_same_numbers(port)
    of_reference = _first_with_same_numbers(reference)
    groups = [{*group} for group in shared]
    differences: list[Difference] = []
    apart: dict[tuple[str, str], list[str]] = {}
    for name in reference:
        port_original, reference_original = of_port.get(name), of_reference.get(name)
        first = port_original or reference_original
        if first is None or any({name, first} <= group for group in groups):
            continue
        array = ArrayId(name, moment="clone")
        item = within(NO_TOLERANCE).compare(
            array, port_original is not None, reference_original is not None
        )
        differences.append(item)
        if item.verdict == DIFFERS:
            side = (
                "in the port and not in the reference" if port_original else "in the reference only"
            )
            apart.setdefault((first, side), []).append(name)
    hints = [
        f"{first_few(names)}: starts with the same random numbers as {first} {side}"
        for (first, side), names in apart.items()
    ]
    return differences, hints


def _first_with_same_numbers(arrays: Arrays) -> dict[str, str]:
    """Map each array to the first one with the same numbers in the same shape, if there is one.

    Constants are left out, because they are equal without being copies.
    """
    first: dict[tuple[tuple[int, ...], str], str] = {}
    copies = {}
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.size < 2 or is_constant(array):
            continue
        original = first.setdefault((array.shape, fingerprint(array)), name)
        if original != name:
            copies[name] = original
    return copies
