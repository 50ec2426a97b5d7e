"""Choose the mutants of a run."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mutants import mutants_of
from summary import Result
from worker import source_of

MOST = 600  # mutants of one run
_OF_NET = 5  # stored mutants of each net
FIXED = Path(__file__).parent / "fixed.json"


class Chosen(NamedTuple):
    """A mutant of a run."""

    net: str
    name: str
    truth: str = ""  # if it is known
    why: str = ""


def draw(nets: Sequence[str], count: int, seed: int) -> list[Chosen]:
    """Draw mutants of some nets, as many of each kind as there are, in turns."""
    by_kind: dict[str, list[Chosen]] = defaultdict(list)
    for net in nets:
        for mutant in mutants_of(source_of(net)):
            by_kind[mutant.kind].append(Chosen(net, mutant.name))
    rng = random.Random(seed)
    waiting = [by_kind[kind] for kind in sorted(by_kind)]
    for one in waiting:
        rng.shuffle(one)
    rng.shuffle(waiting)
    drawn: list[Chosen] = []
    while len(drawn) < count and any(waiting):
        drawn += [one.pop() for one in waiting if one]
    return drawn[:count]


def fixed(nets: Sequence[str]) -> list[Chosen]:
    """Return the mutants whose truth is stored; their sources must be as they were."""
    stored = json.loads(FIXED.read_text(encoding="utf-8"))
    chosen = [Chosen(one["net"], one["name"], one["truth"], one["why"]) for one in stored]
    chosen = [one for one in chosen if one.net in nets]
    existing = {(net, one.name) for net in nets for one in mutants_of(source_of(net))}
    if lost := [one for one in chosen if (one.net, one.name) not in existing]:
        raise SystemExit(f"fixed.json: {lost[0].net} has no mutant {lost[0].name!r}; draw others")
    return chosen


def store(results: Iterable[Result]) -> list[Result]:
    """Choose `_OF_NET` mutants of each net of these results, of kinds that are rare so far, and
    write them with their truths.
    """
    by_net: dict[str, list[Result]] = defaultdict(list)
    for one in sorted(results, key=lambda one: (one["net"], one["name"])):
        # The truth looks at what is computed, not at the law of the initial weights.
        if one["truth"] != "fails" and one.get("where") != "initialisation":
            by_net[one["net"]].append(one)
    kinds, stored = Counter[str](), list[Result]()
    for net, waiting in by_net.items():
        random.Random(net).shuffle(waiting)
        for _ in range(min(_OF_NET, len(waiting))):
            rarest = min(waiting, key=lambda one: kinds[one["kind"]])
            waiting.remove(rarest)
            kinds[rarest["kind"]] += 1
            stored.append({key: rarest[key] for key in ("net", "name", "truth", "why", "answer")})
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in stored)
    FIXED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return stored


def with_known(chosen: Iterable[Chosen], results: Iterable[Result]) -> list[Chosen]:
    """Return mutants with the truths that earlier results have."""
    known = {(one["net"], one["name"]): (one["truth"], one.get("why", "")) for one in results}
    return [Chosen(*one[:2], *known.get(one[:2], one[2:])) for one in chosen]
