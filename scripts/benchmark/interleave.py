"""Measuring in turns: A works while B waits, so that both see the same machine.

Each side may be a process, with memory, thread pools and environment of its own, that runs steps on
request.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Run = Callable[[int], list[float]]  # does so many steps; the seconds of each


def timed(step: Callable[[], object]) -> Run:
    """A function that runs steps and returns the seconds of each."""

    def run(steps: int) -> list[float]:
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        return seconds

    return run


def interleave(runs: Mapping[str, Run], rounds: int, steps: int = 1) -> dict[str, list[float]]:
    """Run all in turns, `steps` steps each, every other round in reverse; the median seconds of a
    step by round.
    """
    medians: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            medians[name].append(statistics.median(runs[name](steps)))
    return medians


def ratios(medians: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """The others' seconds over ours, round by round: {"torch": {"median", "min", "max"}}; above 1
    ours is faster.
    """
    result = {}
    for name, seconds in medians.items():
        if name != "ours":
            pairs = [theirs / ours for ours, theirs in zip(medians["ours"], seconds, strict=True)]
            result[name] = {
                "median": statistics.median(pairs),
                "min": min(pairs),
                "max": max(pairs),
            }
    return result


class Side:
    """A process of `sides.KINDS[kind]` that runs steps on request; as a context manager it ends the
    process.

    Attributes:
        facts: "ready_seconds" from the process's start to the end of its first step,
            "first_step_seconds" of that step, "peak_bytes" of its memory so far.
        log: lines that it printed beside its answers.
    """

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self._kind = kind
        self.facts: dict[str, Any] = {}
        self.log: list[str] = []
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("sides.py"), kind, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.facts["first_step_seconds"] = self.run(1)[0]
        self.facts["ready_seconds"] = time.perf_counter() - began

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends with its standard input

    def run(self, steps: int) -> list[float]:
        """Run steps; the seconds of each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its error output has the reason
            print(steps, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                self.facts |= answer["facts"]
                return answer["seconds"]
            self.log.append(line)
        error = self._process.communicate()[1].strip().splitlines()
        message = error[-1] if error else "no message"
        raise ValueError(f"{self._kind}: cannot run here ({message}); compare without it")
