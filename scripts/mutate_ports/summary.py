"""Summarise the results of mutants by kind and net."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]

_COLUMNS = (
    "mutants",
    "differ",
    "found",
    "error",
    "finding",
    "named",
    "undecided",
    "accepted",
    "accused",
)
_REJECTED = ("differs", "error")


def results_in(files: Iterable[Path]) -> list[Result]:
    """Return the results in files of JSON lines, each mutant once. A file may be missing."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    lines = [line for text in texts for line in text.splitlines()]
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
    lines += ["", f"survivors: {len(alive)}", *_described(alive)]
    accused = [one for one in results if one["truth"] == "same" and one.get("answer") in _REJECTED]
    lines += ["", f"compute the same and are not accepted: {len(accused)}"]
    lines += [f"  {one['net']} {one['name']}\n      {one['where']}" for one in accused]
    return "\n".join(lines)


def comparison(before: Sequence[Result], after: Sequence[Result]) -> str:
    """Return a table by kind of two runs of the same mutants, and what the second one accepts."""
    answers = {(one["net"], one["name"]): one for one in before}
    both = [
        (answers[one["net"], one["name"]], one)
        for one in after
        if (one["net"], one["name"]) in answers and one["truth"] == "differs"
    ]
    words = ("found", "error", "finding", "named", "undecided", "accepted")
    lines = [" | ".join([f"{'kind':24}", f"{'differ':>7}", *(f"{one:>15}" for one in words)])]
    for kind in [*sorted({one["kind"] for _, one in both}), "all"]:
        pairs = [pair for pair in both if kind in (pair[1]["kind"], "all")]
        old, new = (_counts([pair[side] for pair in pairs]) for side in (0, 1))
        cells = [f"{old[one]:4} → {new[one]:4}".rjust(15) for one in words]
        lines.append(" | ".join([f"{kind:24}", f"{len(pairs):7}", *cells]))
    lost = [
        other
        for one, other in both
        if other["answer"] == "accepted" and one["answer"] != "accepted"
    ]
    lines += ["", f"accepted after, but not before: {len(lost)}"]
    lines += [f"  {one['net']} {one['name']}" for one in lost]
    alive = survivors(one for _, one in both)
    lines += ["", f"survivors: {len(survivors(one for one, _ in both))} → {len(alive)}"]
    return "\n".join([*lines, *_described(alive)])


def _described(alive: Sequence[Result]) -> list[str]:
    return [
        f"  {one['net']} {one['name']}\n      {one.get('why', '')}"
        for one in sorted(alive, key=lambda one: (one["kind"], one["net"]))
    ]


def _counts(results: Sequence[Result]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in results:
        answer, truth = one.get("answer"), one["truth"]
        counts["mutants"] += truth != "fails"
        if truth == "differs":
            counts["differ"] += 1
            counts["found" if answer == "differs" else answer] += 1
        counts["accused"] += truth == "same" and answer in _REJECTED
    return counts
