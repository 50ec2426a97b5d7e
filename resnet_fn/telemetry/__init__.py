"""What a run tells: metrics.jsonl, whose lines are events, JSON objects with their "update"; TensorBoard, the bar."""

import json
import sys
from pathlib import Path
from typing import Any


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
