"""Golden answers: do two checkouts say the same of every pair of nets that they compare?

    cd CHECKOUT && python scripts/golden_answers tests OUT [TEST …]    the quick tests of the ladder
    cd CHECKOUT && python scripts/golden_answers nets OUT              ten nets: what is recorded
    cd CHECKOUT && python scripts/golden_answers audits OUT [NET …]    the nets of docs/audit.md
    python scripts/golden_answers compare OLD NEW [--words TABLE]      what differs

`tests` and `nets` run tests of the current folder's checkout in one thread, and write a folder for
each test. Exit code of `compare`: 1 if anything differs that the table of renamed words
(compare.py) does not explain.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
sys.path.append(str(SCRIPTS))
from golden_answers import audits, compare  # noqa: E402

LADDER = "tests/parity"
RIGHT = f"{LADDER}/right_ports"
WITHOUT = "tests/parity/reference"  # these tests ask the ladder nothing
# ten nets of different kinds, of which `nets` writes what is recorded
NETS = (
    *(
        f"{RIGHT}/test_{file}.py::test_a_right_port_of_each_kind_agrees[{kind}]"
        for file, kind in (
            ("convolutions", "ConvNeXt"),
            ("convolutions", "convolution and BatchNorm"),
            ("attention", "text, attention, tied weights"),
            ("convolutions", "one direction"),
            ("convolutions", "frozen body"),
        )
    ),
    f"{RIGHT}/test_outputs.py::test_each_right_port_agrees[a graph: nodes and edges, of other numbers]",
    f"{RIGHT}/test_dropout.py::test_a_right_port_with_a_dropout_branch_agrees",
    f"{LADDER}/test_faults.py::test_half_precision_without_a_fault_agrees",
    f"{LADDER}/test_moving_state.py::test_state_that_moves_alike_agrees_under_any_name[True-average]",
    f"{LADDER}/test_causes.py::test_clipping_before_the_micro_batches_mean_is_named",
)


def run_tests(folder: Path, tests: Sequence[str], kinds: str, workers: int) -> int:
    """Run tests of the checkout in the current folder, and return pytest's exit code."""
    paths = [str(SCRIPTS), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "GOLDEN": str(folder.resolve()),
        "GOLDEN_KINDS": kinds,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "golden_answers.plugin"]
    command += ["-p", "no:cacheprovider", "-n", str(workers), *tests, f"--ignore={WITHOUT}"]
    return subprocess.run(command, env=environment, check=False).returncode


def print_changes(old: Path, new: Path, table: Path | None, tests: Sequence[str], most: int) -> int:
    """Print what differs, and return the exit code."""
    words = json.loads(table.read_text()) if table else {}
    before = {
        test: answers
        for test, answers in compare.read_answers(old).items()
        if not tests or test.startswith(tuple(tests))
    }
    found = compare.changes(before, compare.read_answers(new), words)
    print("\n".join(compare.report(found, most)), end="\n" * bool(found))
    answers, decided = sum(map(len, before.values())), sum(one.decides for one in found)
    print(
        f"{len(before)} tests, {answers} answers: {decided} changes of verdicts, "
        f"{len(found) - decided} other changes"
    )
    return int(bool(found))


def main() -> int:
    """Run one of the commands, and return the exit code."""
    parser = argparse.ArgumentParser(
        "golden_answers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("tests", "nets"):
        one = commands.add_parser(name)
        one.add_argument("out", type=Path, help="a new folder")
        one.add_argument("--workers", type=int, default=0, help="processes; default this one")
    commands.choices["tests"].add_argument("tests", nargs="*", default=[LADDER])
    commands.choices["tests"].add_argument("--slow", action="store_true", help="only slow tests")
    one = commands.add_parser("audits")
    one.add_argument("out", type=Path, help="a folder; nets that it has are not run again")
    one.add_argument("nets", nargs="*", metavar="NET", help="'mindone bert'; default all")
    one.add_argument("--list", action="store_true", help="only print the nets")
    one = commands.add_parser("compare")
    one.add_argument("old", type=Path)
    one.add_argument("new", type=Path)
    one.add_argument("--words", type=Path, help="JSON table of what was renamed")
    one.add_argument("--only", nargs="*", default=[], metavar="TEST", help="beginnings of old ids")
    one.add_argument("--lines", type=int, default=40, help="print at most so many")
    parsed = parser.parse_args()
    if parsed.command == "compare":
        return print_changes(parsed.old, parsed.new, parsed.words, parsed.only, parsed.lines)
    if parsed.command == "audits" and parsed.list:
        print("\n".join(audits.all_nets()))
        return 0
    if parsed.command == "audits":
        return audits.run(parsed.out, parsed.nets or audits.all_nets())
    if parsed.out.exists() and any(parsed.out.iterdir()):
        parser.error(f"out: {parsed.out} is not empty; give a new folder")
    if parsed.command == "nets":
        return run_tests(parsed.out, NETS, "recordings", parsed.workers)
    tests = [*parsed.tests, *(("-m", "slow") if parsed.slow else ())]
    return run_tests(parsed.out, tests, "answers", parsed.workers)


if __name__ == "__main__":
    sys.exit(main())
