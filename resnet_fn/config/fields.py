"""How a setting is declared: its default, its meaning, its unit, its choices; and how a wrong one is refused."""

import dataclasses
from typing import Any


def field(default: Any, meaning: str, unit: str = "", choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field whose metadata `--help` and the flags are made from."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "unit": unit, "choices": choices})


def require(condition: bool, field: str, value: object, fix: str) -> None:
    """Refuse a value.

    Raises:
        ValueError: the condition does not hold; the message names field, value and fix.
    """
    if not condition:
        raise ValueError(f"{field}: {value!r} {fix}")
