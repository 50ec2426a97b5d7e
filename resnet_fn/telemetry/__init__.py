"""This package writes metrics.jsonl (a run's log) and TensorBoard events, and shows the progress
bar.
"""

import json
from pathlib import Path
from typing import Any

from resnet_fn.config.printing import warn
from resnet_fn.config.reading import read_regular

_LARGEST = 1 << 32  # bytes; a log of 10 million updates has 3 GB


def read_log(log: Path) -> list[dict[str, Any]]:
    """Return the events of a metrics.jsonl file.

    Warn of damaged lines, but not of an incomplete last line.
    """
    events = []
    for number, line in enumerate(read_regular(log, _LARGEST).splitlines(keepends=True), 1):
        try:
            event = json.loads(line)
            if event["update"] < 0 or not event["event"] or not isinstance(event["event"], str):
                raise ValueError
            events.append(event)
        except (ValueError, KeyError, TypeError, RecursionError):
            if line.endswith(b"\n"):
                warn(f"{log}: line {number} is damaged and was left out")
    return events
