"""Look for wrong ports that the ladder accepts: small changes of right ports.

    python scripts/mutate_ports --out FILE.jsonl [--mutants 600] [--seed 0] [--shard 1/2] [NET …]
    python scripts/mutate_ports --summary FILE.jsonl …
    python scripts/mutate_ports --fixed --out FILE.jsonl [--shard 1/2]

A mutant has one change of a port's source (`mutants.py`). Whether it computes something else is
decided without the ladder, by the original port (`truth.py`). A survivor is a mutant that computes
something else, is accepted, and whose layer or line is in no line that the original's answer does
not have (`answer.py`).

The results are appended to FILE, a JSON line for each mutant. The same command continues a run that
was stopped. Shards of one run may write to one file each, or take turns with one file.
"""

import argparse
import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutants import mutants_of
from summary import results_in, summary
from worker import NETS, ORIGINAL, source_of

MOST = 600  # mutants of one run
FIXED = Path(__file__).parent / "fixed.json"

_WORKER = Path(__file__).parent / "worker.py"
_ROOT = Path(__file__).parents[2]
_AT_ONCE = 40  # mutants of one process: compiled graphs stay in memory
_LONGEST = 240  # seconds for one mutant, or for the original and its draws


class Chosen(NamedTuple):
    """A mutant of a run."""

    net: str
    name: str
    truth: str = ""  # if it is known


def main(arguments: Sequence[str]) -> int:
    """Run or summarise, and return the exit code."""
    parser = argparse.ArgumentParser("mutate_ports", description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help="nets; default all")
    parser.add_argument("--out", metavar="FILE", help="the file to which results are appended")
    parser.add_argument("--mutants", type=int, default=MOST, help=f"how many; at most {MOST}")
    parser.add_argument("--seed", type=int, default=0, help="draws the mutants")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="part K of N")
    parser.add_argument("--fixed", action="store_true", help="the mutants whose truth is stored")
    parser.add_argument("--summary", nargs="+", metavar="FILE", help="files with results")
    asked = parser.parse_args(arguments)
    if asked.summary:
        print(summary(results_in(map(Path, asked.summary))))
        return 0
    if not asked.out:
        parser.error("--out: give a file for the results")
    shard, shards = map(int, asked.shard.split("/"))
    nets = asked.nets or sorted(one.parent.name for one in NETS.glob("*/port.py"))
    chosen = fixed(nets) if asked.fixed else draw(nets, min(asked.mutants, MOST), asked.seed)
    out = Path(asked.out)
    done = {(one["net"], one["name"]) for one in results_in([out])} if out.exists() else set()
    # neighbours are of one net, so that each shard records few references
    part = sorted(chosen)[len(chosen) * (shard - 1) // shards : len(chosen) * shard // shards]
    run([one for one in part if (one.net, one.name) not in done], out)
    print(summary(results_in([out])))
    return 0


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
    chosen = [Chosen(one["net"], one["name"], one["truth"]) for one in stored]
    known = {(net, one.name) for net in nets for one in mutants_of(source_of(net))}
    if lost := [one for one in chosen if one.net in nets and (one.net, one.name) not in known]:
        raise SystemExit(f"fixed.json: {lost[0].net} has no mutant {lost[0].name!r}; draw others")
    return [one for one in chosen if one.net in nets]


def run(chosen: Sequence[Chosen], out: Path) -> None:
    """Try mutants in processes, several of one net in each."""
    by_net: dict[str, list[Chosen]] = defaultdict(list)
    for one in chosen:
        by_net[one.net].append(one)
    for net, waiting in by_net.items():
        while waiting:
            now, began = waiting[:_AT_ONCE], time.monotonic()
            finished = _try(net, now, out)
            done = {one["name"] for one in finished}
            waiting = [one for one in waiting if one.name not in done]
            took = time.monotonic() - began
            print(f"{net}: {len(finished)} tried, {len(waiting)} left, {took:.0f} s", flush=True)
            if not finished:
                raise SystemExit(f"{net}: the original port is not accepted, or it fails")


def _try(net: str, chosen: Sequence[Chosen], out: Path) -> list[dict[str, Any]]:
    """Try mutants in one process until it ends, and return the results.

    The mutant with which a process crashes or does not end gets a result, too.
    """
    search = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"OMP_NUM_THREADS": "1", "GLOG_v": "3", **os.environ, "PYTHONPATH": search}
    truths = {one.name: one.truth for one in chosen if one.truth}
    asked = {"net": net, "names": [one.name for one in chosen], "truths": truths}
    finished, starts = [], ""
    with (
        subprocess.Popen(
            [sys.executable, _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as process,
        out.open("a", encoding="utf-8") as results,
    ):
        process.stdin.write(json.dumps(asked))
        process.stdin.close()

        def keep(result: dict[str, Any]) -> None:
            finished.append(result)
            results.write(json.dumps(result, ensure_ascii=False) + "\n")
            results.flush()

        for line in _lines(process):
            result = json.loads(line) if line.startswith("{") else {}
            if result.get("name") == ORIGINAL:
                print(f"{net}: {result['answer']} {result['where']}", flush=True)
            elif "starts" in result:
                starts = result["starts"]
            elif result:
                starts = ""
                keep(result)
        ended = process.poll()
        process.kill()
    if starts:
        kind = next(one.kind for one in mutants_of(source_of(net)) if one.name == starts)
        why = "the process crashed" if ended is not None else "the mutant did not end"
        with out.open("a", encoding="utf-8") as results:
            keep = {"net": net, "name": starts, "kind": kind, "truth": "fails", "why": why}
            results.write(json.dumps(keep) + "\n")
        finished.append(keep)
    return finished


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield a process's lines until it ends, or prints nothing for too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(_LONGEST):
            line = process.stdout.readline()
            if not line:
                process.wait()
                return
            yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
