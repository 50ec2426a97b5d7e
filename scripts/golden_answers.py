"""Golden answers: do two checkouts say the same of every pair of nets that the tests compare?

    cd old && GOLDEN=/tmp/old PYTHONPATH=scripts python -m pytest -p golden_answers tests/parity
    cd new && GOLDEN=/tmp/new PYTHONPATH=scripts python -m pytest -p golden_answers tests/parity
    python scripts/golden_answers.py /tmp/old /tmp/new [--words words.json]

As a pytest plugin, it writes the JSON of each comparison that a test makes, under the test's id,
also of the commands that a test starts as processes. The search for causes, which usually ends by
the clock, gets ten minutes. As a program, it compares two such folders: a verdict that changed is
an error, and so is any other text or number that a table of renamed words does not explain. The
table is JSON: {"fields": {old: new}, "texts": [[regular expression, new]], "tests": {old id: new
id}}.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

SECONDS = 600.0  # the search's limit
VOLATILE = ("kernels",)  # what differs from one run to the next
CHILD = "import golden_answers; golden_answers.record_answers()"


def record_answers() -> None:
    """Write what each comparison of this process finds into $GOLDEN, one file for each
    comparison.
    """
    from resnet_fn.parity import ladder
    from resnet_fn.parity.show import json_file

    compare, folder = ladder.compare_recordings, Path(os.environ["GOLDEN"])

    def compare_and_write(*arguments: Any, **keywords: Any) -> Any:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or "no test"
        name = hashlib.sha256(test.encode()).hexdigest()[:16]
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "test").write_text(test)
        file = place / f"{len(list(place.glob('*.json'))):03}.json"
        file.write_text("null")  # a comparison that raises an error stays null
        result = compare(*arguments, **keywords)
        json_file.write_json(result, str(file))
        return result

    ladder.compare_recordings = compare_and_write


def pytest_configure(config: Any) -> None:
    """Record this process's comparisons, and those of the processes that its tests start."""
    from resnet_fn.parity.explain import search

    search.Searcher.__init__.__defaults__ = (SECONDS,)
    record_answers()
    folder = Path(os.environ["GOLDEN"])
    beside = folder / "sitecustomize"
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "sitecustomize.py").write_text(
        f"import sys\nif '-m' in sys.orig_argv:\n    {CHILD}\n"
    )
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(beside), here, os.environ.get("PYTHONPATH", "")]
    )


def read_answers(folder: Path) -> dict[str, list[Any]]:
    """Return the comparisons of each test, in their order."""
    answers = {}
    for place in folder.iterdir():
        if (place / "test").exists():
            files = sorted(place.glob("*.json"))
            answers[(place / "test").read_text()] = [json.loads(file.read_text()) for file in files]
    return answers


def renamed(answer: Any, words: dict[str, Any]) -> Any:
    """Return an answer of the old checkout in the new checkout's fields and texts."""
    if isinstance(answer, dict):
        fields = words.get("fields", {})
        kept = {key: value for key, value in answer.items() if key not in VOLATILE}
        return {
            renamed(fields.get(key, key), words): renamed(value, words)
            for key, value in kept.items()
        }
    if isinstance(answer, list):
        return [renamed(item, words) for item in answer]
    if isinstance(answer, str):
        for pattern, new in words.get("texts", []):
            answer = re.sub(pattern, new, answer)
    return answer


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return one line for each leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        missing = object()
        return [
            line
            for key in keys
            for line in differences(old.get(key, missing), new.get(key, missing), f"{where}/{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for n, (a, b) in enumerate(zip(old, new, strict=True))
            for line in differences(a, b, f"{where}/{n}")
        ]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


def verdicts(answer: Any) -> Any:
    """Return what an answer decides."""
    if answer is None:
        return None
    stages = [(stage["name"], stage["verdict"]) for stage in answer["stages"]]
    firsts = [
        answer[key]
        for key in ("agrees", "first_stage", "first_layer", "first_gradient", "undecided")
    ]
    return [*firsts, stages]


def main() -> int:
    """Compare two folders. Returns 1 if a verdict or anything else differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--words", type=Path, help="JSON table of renamed fields, texts and tests")
    parsed = parser.parse_args()
    words = json.loads(parsed.words.read_text()) if parsed.words else {}
    old, new = read_answers(parsed.old), read_answers(parsed.new)
    tests = words.get("tests", {})
    wrong = 0
    for test, before in sorted(old.items()):
        after = new.get(tests.get(test, test))
        if after is None or len(after) != len(before):
            print(f"{test}: {len(before)} comparisons became {after and len(after)}")
            wrong += 1
            continue
        for number, (a, b) in enumerate(zip(before, after, strict=True)):
            a, b = renamed(a, words), renamed(b, {})
            kind = "VERDICT " if verdicts(a) != verdicts(b) else ""
            for line in differences(a, b)[:5]:
                print(f"{kind}{test}, comparison {number}{line}")
                wrong += 1
    print(f"{len(old)} tests, {sum(map(len, old.values()))} comparisons, {wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
