"""This package writes metrics.jsonl (a run's log) and TensorBoard events, and shows the progress
bar.
"""

import json
import sys
from pathlib import Path
from typing import Any


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
        except (ValueError, KeyError, TypeError, RecursionError):
            if line.endswith(b"\n"):
                print(
                    f"warning: {log}: line {number} is damaged and was left out",
                    file=sys.stderr,
                    flush=True,
                )
    return events
