"""How near to its bound is each array of the comparisons that agree?

    python scripts/bounds.py FOLDER

FOLDER has JSON files of the ladder (`--json`), in any depth. The table (docs/parity.md, "How a
bound comes about") has for each rule the arrays whose bound it gives, and their largest error as a
fraction of the bound.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FACTOR = 4.0  # a multiple of the rounding passes


def comparisons(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each comparison in a folder that agrees."""
    for file in sorted(folder.rglob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        found = content.get("comparison", content) if isinstance(content, dict) else None
        if isinstance(found, dict) and found.get("agrees") and "stages" in found:
            yield found


def main(folder: str) -> None:
    """Print the table."""
    rows: dict[str, list[float]] = defaultdict(list)
    found = list(comparisons(Path(folder)))
    for one in found:
        for item in [item for stage in one["stages"] for item in stage["differences"]]:
            numbers = item["relative"], item["tolerance"], item["rounding"]
            if None not in numbers:
                error, tolerance, rounding = numbers
                bound = max(tolerance, FACTOR * rounding)
                rows[item["why"] or "other"].append(error / bound if bound else error)
    print(f"{len(found)} comparisons\n")
    print("| rule (`why`) | arrays | half of them within | 99 % | all |\n|---|---|---|---|---|")
    for why, parts in sorted(rows.items(), key=lambda row: -len(row[1])):
        parts.sort()
        cells = [parts[int(share * (len(parts) - 1))] for share in (0.5, 0.99, 1)]
        print(f"| {why} | {len(parts)} | {' | '.join(f'{one:.2g}' for one in cells)} |")


if __name__ == "__main__":
    main(sys.argv[1])
