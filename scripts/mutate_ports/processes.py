"""Try mutants in processes of their own, a few at a time."""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chosen import Chosen
from mutants import mutants_of
from summary import Result
from worker import ORIGINAL, source_of

_WORKER = Path(__file__).parent / "worker.py"
# Mutants of one process: compiled graphs stay in memory, and after 13 nets or more MindSpore may
# reject each `tensor[0]` (docs/mindspore.md).
_AT_ONCE = 8
_LONGEST = 400  # seconds for one mutant, or for the original and its draws


def run(chosen: Sequence[Chosen], out: Path, jobs: int, ladder: Path) -> None:
    """Try mutants, several of one net in each process, and append the results to a file."""
    by_net: dict[str, list[Chosen]] = defaultdict(list)
    for one in chosen:
        by_net[one.net].append(one)
    parts = [
        some[first : first + _AT_ONCE]
        for some in by_net.values()
        for first in range(0, len(some), _AT_ONCE)
    ]
    results = _Results(out)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda part: _try_all(part, results, ladder), parts))


class _Results:
    """A file of results, which several threads append to."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()

    def append(self, result: Result) -> None:
        """Append one JSON line."""
        line = json.dumps(result, ensure_ascii=False) + "\n"
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line)


def _try_all(waiting: Sequence[Chosen], results: _Results, ladder: Path) -> None:
    """Try mutants of one net. After a crash, another process continues."""
    net, began, count = waiting[0].net, time.monotonic(), len(waiting)
    while waiting:
        done = _try(net, waiting, results, ladder)
        if not done:
            print(f"{net}: the original port is not accepted, or it fails", flush=True)
            return
        waiting = [one for one in waiting if one.name not in done]
    print(f"{net}: {count} mutants, {time.monotonic() - began:.0f} s", flush=True)


def _try(net: str, chosen: Sequence[Chosen], results: _Results, ladder: Path) -> set[str]:
    """Try mutants in one process until it ends, and return the names of those with a result.

    The mutant with which a process crashes or does not end gets a result, too.
    """
    search = os.pathsep.join([str(ladder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"OMP_NUM_THREADS": "1", "GLOG_v": "3", **os.environ, "PYTHONPATH": search}
    asked = {"net": net, "mutants": [one._asdict() for one in chosen]}
    done, starts = set[str](), ""
    with subprocess.Popen(
        [sys.executable, _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        process.stdin.write(json.dumps(asked))
        process.stdin.close()
        for line in _lines(process):
            result = json.loads(line) if line.startswith("{") else {}
            if result.get("name") == ORIGINAL:
                print(f"{net}: {result['answer']} {result['where']}", flush=True)
            elif "starts" in result:
                starts = result["starts"]
            elif result:
                starts = ""
                done.add(result["name"])
                results.append(result)
        ended = process.poll()
        process.kill()
    if starts:
        kind = next(one.kind for one in mutants_of(source_of(net)) if one.name == starts)
        why = "the process crashed" if ended is not None else "the mutant did not end"
        known = {one.name: one.truth for one in chosen}[starts]
        facts = {"truth": known, "answer": "error", "where": why} if known else {"truth": "fails"}
        results.append({"net": net, "name": starts, "kind": kind, "why": why, **facts})
        done.add(starts)
    return done


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
