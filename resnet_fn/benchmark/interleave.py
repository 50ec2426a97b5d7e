"""Processes that take turns: A works while B waits, so that both see the same machine.

Each side is a process of its own (memory, thread pools and environment do not mix) that builds its work, says so, and
then runs as many steps as it is told, when it is told.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any


class Side:
    """One of the processes that take turns.

    Args:
        kind: a key of `sides.KINDS`.
        spec: what it works on, as JSON types.
        environment: variables beside this process's own.
        name: what to call it; "" for `kind`.

    Attributes:
        ready_seconds: from the process's start to the end of its first step.
    """

    def __init__(
        self, kind: str, spec: Mapping[str, Any], environment: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        self.kind = name or kind
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "resnet_fn.benchmark.sides", kind, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._answer()
        self.ready_seconds = time.perf_counter() - began

    def run(self, steps: int) -> list[float]:
        """Run steps; seconds of each."""
        return self._ask(f"run {steps}")

    def facts(self) -> dict[str, Any]:
        """What the side knows of itself: peak memory in bytes, and more by kind."""
        return self._ask("facts")

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        error = self._process.communicate()[1].strip().splitlines()
        raise ValueError(f"against: {self.kind} cannot run here ({error[-1] if error else 'no message'}); leave it out")


def interleave(sides: Sequence[Side], rounds: int, steps: int) -> dict[str, list[float]]:
    """Let the sides take turns, `steps` steps at a time; the order turns round each time.

    Returns:
        For each kind the median seconds of a step, one for each round.
    """
    medians: dict[str, list[float]] = {side.kind: [] for side in sides}
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else reversed(sides):
            medians[side.kind].append(statistics.median(side.run(steps)))
    return medians


def ratios(medians: Mapping[str, Sequence[float]], ours: str = "ours") -> dict[str, dict[str, float]]:
    """Our speed over each other's, round by round: {"torch": {"median": …, "min": …, "max": …}}; above 1 we win."""
    result = {}
    for kind, seconds in medians.items():
        if kind != ours:
            pairs = [theirs / own for own, theirs in zip(medians[ours], seconds, strict=True)]
            result[kind] = {"median": statistics.median(pairs), "min": min(pairs), "max": max(pairs)}
    return result
