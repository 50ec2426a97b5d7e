"""Summarise the results of mutants by kind and net."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]

_COLUMNS = ("mutants", "differ", "found", "finding", "named", "undecided", "accepted", "accused")
_FOUND = ("differs", "error")


def results_in(files: Iterable[Path]) -> list[Result]:
    """Return the results in files of JSON lines, each mutant once."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    results = map(json.loads, lines)
    return list({(one["net"], one["name"]): one for one in results}.values())


def survivors(results: Iterable[Result]) -> list[Result]:
    """Return the mutants that compute something else and are accepted unnamed."""
    return [one for one in results if (one["truth"], one.get("answer")) == ("differs", "accepted")]


def summary(results: Sequence[Result]) -> str:
    """Return a table by kind and by net, and the survivors."""
    lines = []
    for key in ("kind", "net"):
        lines += ["", " | ".join([f"{key:24}", *(f"{one:>9}" for one in _COLUMNS)])]
        groups = sorted({one[key] for one in results})
        rows = {group: [one for one in results if one[key] == group] for group in groups}
        for group, some in {**rows, "all": results}.items():
            counts = _counts(some)
            lines.append(" | ".join([f"{group:24}", *(f"{counts[one]:9}" for one in _COLUMNS)]))
    alive = survivors(results)
    lines += ["", f"survivors: {len(alive)}"]
    for one in sorted(alive, key=lambda one: (one["kind"], one["net"])):
        lines.append(f"  {one['net']} {one['name']}\n      {one.get('why', '')}")
    accused = [one for one in results if one["truth"] == "same" and one.get("answer") in _FOUND]
    lines += ["", f"compute the same and are not accepted: {len(accused)}"]
    lines += [f"  {one['net']} {one['name']}\n      {one['where']}" for one in accused]
    return "\n".join(lines)


def _counts(results: Sequence[Result]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in results:
        answer, truth = one.get("answer"), one["truth"]
        counts["mutants"] += truth != "fails"
        if truth == "differs":
            counts["differ"] += 1
            counts["found" if answer in _FOUND else answer] += 1
        counts["accused"] += truth == "same" and answer in _FOUND
    return counts
