"""What is tried, and what came of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from resnet_fn.config.hints import first_line

if TYPE_CHECKING:
    from resnet_fn.runtime.workers import Workers


class Check(NamedTuple):
    """One thing that is tried: its name, what does it, and what its answer means for a user."""

    name: str
    run: Callable[[], tuple[bool, str]]
    means: str


class Finding(NamedTuple):
    """What a check found."""

    name: str
    ok: bool
    found: str
    means: str


def find(check: Check) -> Finding:
    """Do a check; one that raises has found something broken."""
    try:
        ok, found = check.run()
    except Exception as error:
        ok, found = False, f"{type(error).__name__}: {first_line(error)}"
    return Finding(check.name, ok, found, check.means)


def on_all_ranks(findings: list[Finding], workers: "Workers") -> list[Finding]:
    """What holds on every rank: a check that failed on any is broken, and its worker's log says how."""
    from resnet_fn.runtime.workers import sum_over_ranks

    counts = sum_over_ranks(np.array([not finding.ok for finding in findings], np.float32), workers)
    return [
        finding._replace(ok=False, found=f"broken on {count:.0f} of {workers.size} workers (see each one's log)")
        if count and finding.ok
        else finding
        for finding, count in zip(findings, counts, strict=True)
    ]


def line(finding: Finding) -> str:
    """It for a reader, in two lines."""
    verdict = "ok" if finding.ok else "BROKEN"
    return f"{f'{verdict:7} {finding.name}':20} {finding.found}\n{'':20} {finding.means}"
