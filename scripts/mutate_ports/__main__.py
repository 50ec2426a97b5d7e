"""Look for wrong ports that the ladder accepts: small changes of right ports.

    python scripts/mutate_ports --out FILE.jsonl [--mutants 600] [--seed 0] [--jobs 2] [NET …]
    python scripts/mutate_ports --out BEFORE.jsonl --ladder CHECKOUT --known FILE.jsonl
    python scripts/mutate_ports --compare BEFORE.jsonl FILE.jsonl
    python scripts/mutate_ports --fixed --out FILE.jsonl

A mutant has one change of a port's source (`mutants.py`). Whether it computes something else is
decided without the ladder, by the original port (`truth.py`). A survivor is a mutant that computes
something else, is accepted, and whose layer or line is in no line that the original's answer does
not have (`answer.py`).

The results are appended to FILE, a JSON line for each mutant. The same command continues a run that
was stopped. A table by kind is printed, and written beside FILE. Shards of one run may run on
several machines, and write a file each (`--shard 1/3`); `--summary` takes all of them.
"""

import argparse
import sys
from pathlib import Path

from chosen import MOST, Chosen, draw, fixed, store, with_known
from processes import run
from summary import comparison, results_in, summary
from worker import NETS

_ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    """Run or summarise, and return the exit code."""
    asked = parsed(arguments)
    if asked.summary:
        print(summary(results_in(asked.summary)))
        return 0
    if asked.store:
        print(f"{len(store(results_in(asked.store)))} mutants are stored with their truths")
        return 0
    if asked.compare:
        print(comparison(*(results_in([file]) for file in asked.compare)))
        return 0
    nets = asked.nets or sorted(one.parent.name for one in NETS.glob("*/port.py"))
    chosen = fixed(nets) if asked.fixed else draw(nets, min(asked.mutants, MOST), asked.seed)
    part = _shard(with_known(chosen, results_in(asked.known)), asked.shard)
    done = {(one["net"], one["name"]) for one in results_in([asked.out])}
    run(
        [one for one in part if (one.net, one.name) not in done],
        asked.out,
        asked.jobs,
        asked.ladder,
    )
    text = summary(results_in([asked.out]))
    asked.out.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser("mutate_ports", description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help="nets; default all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where results are appended")
    parser.add_argument("--mutants", type=int, default=MOST, help=f"how many; at most {MOST}")
    parser.add_argument("--seed", type=int, default=0, help="draws the mutants")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="part K of N")
    parser.add_argument("--fixed", action="store_true", help="the mutants whose truth is stored")
    parser.add_argument(
        "--ladder", type=Path, default=_ROOT, metavar="CHECKOUT", help="whose ladder is asked"
    )
    more = {"type": Path, "nargs": "+", "metavar": "FILE", "default": []}
    parser.add_argument("--known", help="results with truths, which are not decided again", **more)
    parser.add_argument("--summary", help="print a table of these results", **more)
    parser.add_argument("--store", help="store some of these results for --fixed", **more)
    parser.add_argument("--compare", help="print a table of results before and after", **more)
    asked = parser.parse_args(arguments)
    if not (asked.out or asked.summary or asked.store or asked.compare):
        parser.error("--out: give a file for the results")
    return asked


def _shard(chosen: list[Chosen], shard: str) -> list[Chosen]:
    """Return part K of N, given as "K/N". Neighbours are of one net, so that each part records few
    references.
    """
    number, count = map(int, shard.split("/"))
    first, last = ((len(chosen) * one) // count for one in (number - 1, number))
    return sorted(chosen)[first:last]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
