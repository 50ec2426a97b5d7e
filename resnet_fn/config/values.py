"""These functions convert values of settings to what users type, to paths and to JSON."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, Any] = MappingProxyType({})  # the default of arguments that are mappings


def show_value(value: object) -> str:
    """Format a setting's value as a user types it after the flag."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)


def expand_home(path: str) -> str:
    """Replace ~ at the start of a path by the home folder, as a shell does.

    A path that exists as it is written stays unchanged.
    """
    if os.path.lexists(path):
        return path
    return os.path.expanduser(path)


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a recipe, options or an `InputSpec` to a dict of JSON types."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(config).items()
    }
