"""What JSON can hold: it has no NaN and no infinity."""

import math
from typing import Any


def finite_or_null(value: Any) -> Any:
    """A value for JSON: null stands for each float that is there but is NaN or infinite.

    Args:
        value: JSON types and tuples, nested in any way.

    Returns:
        The same with None in place of those floats, and lists in place of tuples.
    """
    if isinstance(value, dict):
        return {key: finite_or_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
