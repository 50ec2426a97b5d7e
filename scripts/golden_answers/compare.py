"""Compare the golden answers of two checkouts, through a table of what was renamed.

The table is JSON, each entry optional; patterns are regular expressions, applied in their order to
what the old checkout answered:

    {"tests": [[pattern, new]],    ids of tests
     "paths": [[pattern, new]],    places in an answer: "comparison/stages/gradients/verdict"
     "texts": [[pattern, new]],    texts in an answer, in whatever place
     "left_out": [pattern]}        places that are compared in neither checkout (they are new, say)

Of an answer, items of a list that have a name stand under it, and their order is a text.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from golden_answers.plugin import TEST_FILE

Flat = dict[str, Any]  # path → a number, a text, a bool or None
_MISSING = "(missing)"
ANSWER = {"comparison", "command", "error", "recording"}  # the first word of a path

# What differs from one run of a checkout to the next, with the lines of a test file, or with the
# checkout's folder.
_MASKED = (
    (r"\b[\d.]+ (s|MB)\b", r"N \1"),
    (r"(\.py):\d+", r"\1:N"),
    (r"(?<!\S)/\S+/(tests/)", r"\1"),
)
# What decides: a change of it is a changed verdict.
_DECIDES = re.compile(
    r"^(comparison|command/json)/"
    r"(agrees$|undecided\b|first_\w+$|(stages|layers)/.*/verdict$)|^command/(exit|error)$|^error$"
)


class Change(NamedTuple):
    """A place at which two checkouts differ."""

    test: str  # the old id
    answer: int  # its number within the test
    path: str
    old: Any
    new: Any

    @property
    def decides(self) -> bool:
        """Whether it changes a verdict."""
        return bool(_DECIDES.match(self.path))

    def line(self) -> str:
        """Return the change in words."""
        return (
            f"{self.test}, answer {self.answer}, {self.path}: "
            f"{_short(self.old)} became {_short(self.new)}"
        )


def _short(value: Any) -> str:
    text = value if value is _MISSING else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def read_answers(folder: Path) -> dict[str, list[Any]]:
    """Return the answers of each test, in their order."""
    answers = {}
    for file in sorted(folder.glob(f"*/{TEST_FILE}")):
        found = sorted(file.parent.glob("*.json"))
        answers[file.read_text()] = [json.loads(one.read_text()) for one in found]
    return answers


def flat(answer: Any) -> Flat:
    """Return an answer as {path: value}."""
    return dict(_leaves(answer, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{path}/{key}".lstrip("/"))
    elif isinstance(value, list):
        names = _names(value)
        if any(isinstance(one, Mapping) for one in value):
            yield f"{path}/order", ", ".join(names)
        for name, one in zip(names, value, strict=True):
            yield from _leaves(one, f"{path}/{name}")
    else:
        yield path, _masked(value)


def _names(items: Sequence[Any]) -> list[str]:
    """Return a name for each item: its own, with its number among those of that name, or its
    number.
    """
    names: list[str] = []
    for number, item in enumerate(items):
        if isinstance(item, Mapping) and "name" in item:
            name = " ".join(str(item[key]) for key in ("mode", "name") if key in item)
            before = sum(one.partition(" #")[0] == name for one in names)
            names.append(f"{name} #{before + 1}" if before else name)
        else:
            names.append(str(number))
    return names


def _masked(value: Any) -> Any:
    return _replaced(value, _MASKED) if isinstance(value, str) else value


def _replaced(text: str, table: Iterable[Sequence[str]]) -> str:
    for pattern, new in table:
        text = re.sub(pattern, new, text)
    return text


def renamed(answer: Flat, words: Mapping[str, Any]) -> Flat:
    """Return an answer of the old checkout with the new checkout's paths and texts."""
    texts = words.get("texts", ())
    return {
        _replaced(path, words.get("paths", ())): _replaced(value, texts)
        if isinstance(value, str)
        else value
        for path, value in answer.items()
    }


def changes(
    old: Mapping[str, list[Any]], new: Mapping[str, list[Any]], words: Mapping[str, Any]
) -> list[Change]:
    """Return what differs: of each test of the old checkout, answer by answer."""
    left_out = re.compile("|".join(words.get("left_out", ())) or r"(?!)")  # or nothing
    found = []
    for test, before in old.items():
        after = new.get(_replaced(test, words.get("tests", ())))
        if after is None:
            found.append(Change(test, 0, "the test", f"{len(before)} answers", _MISSING))
            continue
        if len(after) != len(before):
            counts = [f"{len(before)} answers", f"{len(after)} answers"]
            found.append(Change(test, 0, "the test", *counts))
        for number, pair in enumerate(zip(before, after, strict=False)):
            a, b = renamed(flat(pair[0]), words), flat(pair[1])
            for path in [*a, *(path for path in b if path not in a)]:
                values = a.get(path, _MISSING), b.get(path, _MISSING)
                if values[0] != values[1] and not left_out.search(path):
                    found.append(Change(test, number, path, *values))
    return found


def report(found: Sequence[Change], most: int) -> list[str]:
    """Return at most so many lines: changed verdicts, then other changes, alike ones together."""
    decided = [change for change in found if change.decides or change.path == "the test"]
    groups: dict[str, list[Change]] = {}
    for change in found:
        if change not in decided:
            groups.setdefault(_kind(change), []).append(change)
    lines = [f"VERDICT {change.line()}" for change in decided]
    if len(lines) > most // 2:
        rest = len(lines) - most // 2
        lines = [*lines[: most // 2], f"… and {rest} more changes of verdicts"]
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    for kind, alike in ordered:
        lines.append(f"{len(alike)} × {kind}; first: {alike[0].line()}")
    if len(lines) > most:
        lines = [*lines[: most - 1], f"… and {len(lines) - most + 1} more kinds of changes"]
    return lines


def _kind(change: Change) -> str:
    """Return what is alike in many changes: the words replaced, or a place without its names."""
    place = re.sub(r"^((?:[^/]*/){2}).*/", r"\1…/", change.path)
    if change.new is _MISSING:
        return f"{place} is missing"
    if change.old is _MISSING:
        return f"{place} is new"
    if isinstance(change.old, str) and isinstance(change.new, str):
        return _words_replaced(change.old, change.new)
    return place


def _words_replaced(old: str, new: str) -> str:
    a, b = old.split(), new.split()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    parts = [
        f"{' '.join(a[i:j])!r} → {' '.join(b[k:m])!r}"
        for tag, i, j, k, m in matcher.get_opcodes()
        if tag != "equal"
    ]
    return re.sub(r"\d+", "0", ", ".join(parts))
