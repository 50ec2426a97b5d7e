"""JSON as it is written, without NaN and infinity, and metrics.jsonl as it is read."""

import json
import math
import sys
from pathlib import Path
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


def read_log(log: Path) -> list[dict[str, Any]]:
    """The events of a metrics.jsonl; damaged lines are left out, with a warning but for a last one that is torn.

    Raises:
        OSError: it cannot be read.
    """
    events = []
    for number, line in enumerate(log.read_bytes().splitlines(keepends=True), 1):
        try:
            event = json.loads(line)
            if event["update"] >= 0:
                events.append(event)
        except (ValueError, KeyError, TypeError):
            if line.endswith(b"\n"):
                print(f"warning: {log}: line {number} is damaged; left out", file=sys.stderr, flush=True)
    return events
