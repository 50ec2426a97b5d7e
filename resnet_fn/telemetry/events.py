"""Reading metrics.jsonl: an event, a JSON object with its "update", on each line."""

import json
import sys
from pathlib import Path
from typing import Any


def read_log(log: Path) -> list[dict[str, Any]]:
    """The events of a log. A damaged line is named in a warning and left out; so is, unnamed, a last one that is torn.

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
