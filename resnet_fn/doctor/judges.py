"""Judgements of the acceptance kit: of what commands wrote, whether it is right, and what it says.

What is allowed is the same on a CPU and on a card: there float32 is computed in float32 (no HF32), by kernels and
collectives that repeat, unless a run asks for --fast-math; none of the kit's does.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.doctor.golden import golden_losses

FIRST, LATER, HALF = 1e-5, 1e-2, 2e-2  # relative: the first update, losses of further ones; the first in float16
_WARM = 3  # updates that compile and fill the queue of batches


class Answer(NamedTuple):
    """Whether it is right, what was found, and numbers for a program."""

    ok: bool
    found: str
    numbers: Mapping[str, Any] = {}


def apart(a: float | None, b: float | None) -> float:
    """|a − b| / |b|; infinity where one is not finite."""
    return math.inf if a is None or b is None else abs(a - b) / (abs(b) or 1.0)


def ladder(told: Mapping[str, Any]) -> Answer:
    """What the ladder's JSON says."""
    verdicts = Counter(stage["verdict"] for stage in told["stages"])
    found = ", ".join(f"{count} stages {verdict}" for verdict, count in verdicts.items())
    if not told["agrees"]:
        places = [("stage", told["first_stage"]), ("layer", told["first_layer"]), ("gradient", told["first_gradient"])]
        found += "; first that differ: " + ", ".join(f"{kind} {name}" for kind, name in places if name)
    return Answer(told["agrees"], f"{found} (ladder.json)", dict(verdicts))


def scores(expected: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> Answer:
    """Every way to score must give what training's own evaluation gave, to the bit."""
    other = [way for way, result in results.items() if any(expected[name] != result[name] for name in result)]
    words = f"another with {', '.join(other)}" if other else f"the same with {', '.join(results)}"
    return Answer(not other, f"loss {expected['loss']!r} of {expected['count']} images; {words}")


def workers(ours: Sequence[Mapping[str, Any]], one: Sequence[Mapping[str, Any]]) -> Answer:
    """Two runs must begin alike, in loss and gradient norm, and their losses must stay so, but for rounding."""
    if len(ours) != len(one):
        return Answer(False, f"{len(ours)} updates instead of {len(one)}")
    first = max(apart(ours[0][name], one[0][name]) for name in ("loss", "grad_norm"))
    worst = max(apart(a["loss"], b["loss"]) for a, b in zip(ours, one, strict=True))
    ok = first <= FIRST and worst <= LATER
    return Answer(ok, f"update 1 is {first:.1g} off, the losses of all {len(one)} up to {worst:.1g}")


def overflow(log: Sequence[Mapping[str, Any]], moved: Sequence[bool]) -> Answer:
    """Skipped updates must halve the scale and move nothing; others must move the weights.

    Args:
        log: all updates of a run in float16 that began with the largest loss scale.
        moved: of each update from the second on, whether it changed the weights.
    """
    total = [event["skipped"] for event in log]
    skipped = [b > a for a, b in zip([0, *total], total, strict=False)]
    scales = [event["loss_scale"] for event in log]
    faults = [
        ("no overflow was noticed", not (skipped[0] and skipped[1])),
        ("every update was skipped", all(skipped)),
        ("a skipped update moved weights", any(a and b for a, b in zip(skipped[1:], moved, strict=True))),
        ("an update moved nothing", any(not a and not b for a, b in zip(skipped[1:], moved, strict=True))),
        (
            "the scale did not halve",
            any(b != (a / 2 if s else a) for a, b, s in zip(scales, scales[1:], skipped, strict=False)),
        ),
        (
            f"the first loss is {log[0]['loss']}",
            not apart(log[0]["loss"], golden_losses()["first_updates"][0]) <= HALF,
        ),
    ]
    wrong = [text for text, is_so in faults if is_so]
    found = f"{total[-1]} of {len(log)} updates skipped, the scale went from {scales[0]:,.0f} to {scales[-1]:,.0f}"
    return Answer(not wrong, "; ".join([*wrong, found]))


def resume(
    at: int, updates: Sequence[int], ours: Mapping[str, np.ndarray], unbroken: Mapping[str, np.ndarray]
) -> Answer:
    """Both must end after the same update with the same bits."""
    names = sorted(ours.keys() | unbroken.keys())
    other = [n for n in names if n not in ours or n not in unbroken or ours[n].tobytes() != unbroken[n].tobytes()]
    if updates[0] != updates[1]:
        return Answer(False, f"killed after update {at}, it ended after {updates[0]} instead of {updates[1]}")
    words = f"{len(other)} of {len(names)} arrays differ, {other[0]} first" if other else f"{len(names)} arrays equal"
    return Answer(not other, f"killed after update {at}, after {updates[0]}: {words}")


def speed(log: Sequence[Mapping[str, Any]], updates: int, batch: int, precision: str) -> Answer:
    """All updates must be there and finite; how fast they were is told."""
    late = log[_WARM:]
    finite = len(log) == updates and all(event["loss"] is not None for event in log)
    if not finite or not late:
        return Answer(False, f"{len(log)} of {updates} updates, losses {[event['loss'] for event in log]}")
    seconds = statistics.median(event["step_seconds"] for event in late)
    waiting = sum(event["data_seconds"] for event in late) / sum(event["step_seconds"] for event in late)
    numbers = {
        "images_per_second": batch / seconds,
        "waiting_share": waiting,
        "batch_size": batch,
        "precision": precision,
        "first_step_seconds": log[0]["step_seconds"],
    }
    found = f"{batch / seconds:.1f} images/s in {precision}, batch {batch}; {waiting:.0%} of the time waiting for data"
    return Answer(True, f"{found}; the first update took {log[0]['step_seconds']:.0f} s", numbers)
