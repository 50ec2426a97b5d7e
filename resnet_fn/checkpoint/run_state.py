"""`check_run_state` checks what state.json contains about a run.

A state.json with the hash in the manifest may still contain anything, if a stranger wrote both.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.manifest import STATE, CheckpointError
from resnet_fn.data.input_spec import InputSpec


def check_run_state(state: Mapping[str, Any], folder: Path) -> None:
    """Raise CheckpointError if an entry of the checkpoint `folder` is not what a run saves.

    `SavedState` reports entries that are missing.
    """
    for name, is_valid in _ENTRIES.items():
        if name in state and not is_valid(state[name]):
            value = repr(state[name])
            shown = value if len(value) <= 40 else f"{value[:40]}…"
            raise CheckpointError(
                f"{folder / STATE}: {name} {shown} is not what a run saves; use another checkpoint"
            )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_evaluation(value: Any) -> bool:
    """Return whether `value` has the update of an evaluation, and numbers; or None for none."""
    if value is None:
        return True
    if not _is_table(value) or not _is_count(value.get("update")):
        return False
    # null is NaN
    return all(item is None or _is_number(item) for name, item in value.items() if name != "event")


def _is_recipe(value: Any) -> bool:
    return _is_table(value) and isinstance(value.get("model"), str)


def _is_input(value: Any) -> bool:
    try:
        InputSpec.from_dict(value)
    except ValueError:
        return False
    return True


def _has_samples(value: Any) -> bool:
    return _is_table(value) and _is_count(value.get("samples"))


def _has_samples_or_is_none(value: Any) -> bool:
    return value is None or _has_samples(value)


def _are_class_rows(value: Any) -> bool:
    columns = {"training_images", "loss_weight", "times_seen"}
    return isinstance(value, list) and all(
        _is_table(row) and row.keys() >= columns and _are_numbers([*row.values()]) for row in value
    )


_ENTRIES = {
    "update": _is_count,
    "epoch": _is_count,
    "without_gain": _is_count,
    "best": _is_evaluation,
    "last": _is_evaluation,
    "recipe": _is_recipe,
    "dataset": _is_input,
    "feed": _has_samples,
    "validation": _has_samples_or_is_none,
    "parallel_layout": _is_table,
    "class_weights": _are_numbers,
    "class_balance": _are_class_rows,
}
