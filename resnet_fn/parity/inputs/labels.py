"""Compare the labels that both sides give to the same pictures."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.trace.difference import DIFFERS, OK, UNDECIDED

_NARROW = 1e-3  # entries of one-hot labels that are so close differ by their type alone


@dataclasses.dataclass(frozen=True)
class LabelResult:
    """Whether both sides give the same labels."""

    compared: int
    verdict: str  # "" if no side has labels
    words: str = ""  # what differs, or what is not compared
    first: str = ""  # the name of the first picture whose label differs
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class _Label:
    index: int | None  # of the class; None if the label is not one class
    form: str


def _label_of(array: np.ndarray) -> _Label:
    """Return the class that a label names: a number, or a vector with one entry for each class."""
    if array.size == 1:
        value = float(array.reshape(()))
        return _Label(int(value) if value.is_integer() else None, "an index")
    vector = array.ravel()
    largest = vector.max()
    single = int((vector == largest).sum()) == 1
    if not single or not np.isclose(
        vector.sum(),
        1,
        atol=1e-4,
    ):
        return _Label(None, f"a vector of {vector.size}")
    smoothed = " with label smoothing" * bool(largest < 1)
    return _Label(int(vector.argmax()), f"one-hot of {vector.size} classes{smoothed}")


def compare_labels(
    port: Mapping[str, np.ndarray | None], reference: Mapping[str, np.ndarray | None]
) -> LabelResult:
    """Compare labels by the name of a picture, "CLASS/FILE" where a folder is a class."""
    have = [any(label is not None for label in side.values()) for side in (port, reference)]
    if not all(have):
        which = "the port's" if have[0] else "the reference's" if have[1] else "no"
        return LabelResult(
            0,
            "",
            f"{which} samples have labels" + ", so none is compared",
        )
    arrays = {
        name: (of_port, of_reference)
        for name, of_reference in reference.items()
        if of_reference is not None and (of_port := port.get(name)) is not None
    }
    pairs = {
        name: (_label_of(of_port), _label_of(of_reference))
        for name, (of_port, of_reference) in arrays.items()
    }
    if not pairs:
        return LabelResult(0, UNDECIDED, "no picture has a label on both sides")
    notes = _other_types(arrays)
    port_label, reference_label = next(iter(pairs.values()))
    differences = []
    if port_label.form != reference_label.form:
        differences.append(
            f"{port_label.form} in the port, {reference_label.form} in the reference"
        )
    if any(None in (of_port.index, of_reference.index) for of_port, of_reference in pairs.values()):
        same = all(_equal(of_port, of_reference) for of_port, of_reference in arrays.values())
        unequal = "vectors that are not of one class differ"
        differences += [] if same else [unequal]
        return LabelResult(
            len(pairs),
            DIFFERS if differences else OK,
            "; ".join(differences),
            "",
            notes,
        )
    indices = {
        name: (of_port.index or 0, of_reference.index or 0)
        for name, (of_port, of_reference) in pairs.items()
    }
    wrong = [name for name, (of_port, of_reference) in indices.items() if of_port != of_reference]
    if wrong:
        differences.append(_mistake(indices))
    elif not differences:
        wrong, message = _other_smoothing(arrays)
        differences += [message] if wrong else []
    verdict = DIFFERS if differences else OK
    return LabelResult(
        len(pairs),
        verdict,
        "; ".join(differences),
        wrong[0] if wrong else "",
        notes,
    )


def _other_types(arrays: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    kinds = {(of_port.dtype, of_reference.dtype) for of_port, of_reference in arrays.values()}
    return [
        f"labels: {port_dtype} in the port, {reference_dtype} in the reference"
        for port_dtype, reference_dtype in kinds
        if port_dtype != reference_dtype
    ]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(
        np.allclose(
            a,
            b,
            rtol=1e-5,
            atol=1e-7,
        )
    )


def _other_smoothing(
    arrays: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> tuple[list[str], str]:
    """Return which labels of the same classes have other entries, and the first of these."""
    apart = {
        name: np.abs(np.float64(of_port).ravel() - np.float64(of_reference).ravel())
        for name, (of_port, of_reference) in arrays.items()
        if of_port.size == of_reference.size
    }
    wrong = [name for name, distances in apart.items() if distances.max() > _NARROW]
    if not wrong:
        return [], ""
    first = wrong[0]
    entry = int(apart[first].argmax())
    values = [f"{side.ravel()[entry]:.4g}" for side in arrays[first]]
    return wrong, (
        f"amount of smoothing: entry {entry} of {first} is {values[0]} in the port, "
        f"{values[1]} in the reference"
    )


def _mistake(indices: Mapping[str, tuple[int, int]]) -> str:
    """Return what makes the port's classes of pictures differ from the reference's."""
    offsets = {port - reference for port, reference in indices.values()}
    classes = {reference for _, reference in indices.values()}
    if len(offsets) == 1 and len(classes) > 1:
        offset = next(iter(offsets))
        more = "more" if offset > 0 else "less"
        return f"an offset: each index is {abs(offset)} {more} in the port"
    first, (port, reference) = next(item for item in indices.items() if item[1][0] != item[1][1])
    wrong = sum(port != reference for port, reference in indices.values())
    one_to_one = (
        len({*indices.values()}) == len(classes) == len({index for index, _ in indices.values()})
    )
    if not one_to_one:
        count = f"{wrong} of {len(indices)} labels"
        return f"{count}: {port} in the port, {reference} in the reference for {first}"
    orders = _order(indices, 0), _order(indices, 1)
    known = f" (classes {orders[0]} in the port, {orders[1]} in the reference)" * all(orders)
    return f"class order: {first} is {port} in the port, {reference} in the reference{known}"


def _order(indices: Mapping[str, tuple[int, int]], side: int) -> str:
    """Return by what a side sorts the names of class folders, or ""."""
    numbers = {os.path.dirname(name): pair[side] for name, pair in indices.items()}
    if len(numbers) < 2 or "" in numbers:
        return ""
    by_index = sorted(numbers, key=lambda name: numbers[name])
    keys = {
        "sorted by letters": lambda name: name,
        "sorted by numbers in names": _natural,
        "sorted without regard to case": str.lower,
        "sorted backward": lambda name: [-ord(letter) for letter in name] + [0],
    }
    return next((order for order, key in keys.items() if by_index == sorted(numbers, key=key)), "")


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdigit() else (1 << 60, part) for part in parts]


def words_of_order(port: Sequence[str], reference: Sequence[str]) -> str:
    """Return whether two data sets give their samples in the same order, as information."""
    if not port or not reference:
        return ""
    length = min(len(port), len(reference))
    if [*port[:length]] == [*reference[:length]]:
        return f"order of samples: the first {length} are the same on both sides"
    port_names, reference_names = first_few([*port], 4), first_few([*reference], 4)
    return f"order of samples: {port_names} in the port; {reference_names} in the reference"
