"""This package writes metrics.jsonl (a run's log) and TensorBoard events, and shows the progress
bar.
"""

import json
from pathlib import Path
from typing import Any

from resnet_fn.config.printing import warn


def read_log(log: Path) -> list[dict[str, Any]]:
    """Return the events of a metrics.jsonl file.

    Warn of damaged lines, but not of an incomplete last line.
    """
    events = []
    for number, line in enumerate(log.read_bytes().splitlines(keepends=True), 1):
        try:
            event = json.loads(line)
            if event["update"] >= 0:
                events.append(event)
        except (ValueError, KeyError, TypeError):
            if line.endswith(b"\n"):
                warn(f"{log}: line {number} is damaged and was left out")
    return events
