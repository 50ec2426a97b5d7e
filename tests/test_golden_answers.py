"""scripts/golden_answers: what it takes of a checkout, and what it calls a difference."""

import copy
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))
compare, hooks, plugin, recordings = (
    importlib.import_module(f"golden_answers.{name}")
    for name in ("compare", "hooks", "plugin", "recordings")
)
ANSWER = {
    "comparison": {
        "agrees": True,
        "first_stage": None,
        "stages": [
            {"name": "weights", "verdict": "ok", "hints": []},
            {"name": "loss", "verdict": "ok", "hints": ["net.py:12 (fc): no bias added here"]},
        ],
    }
}


def changes_of(change, **words) -> list[Any]:
    """What differs after `change` of a copy of ANSWER's comparison, through a table of words."""
    changed = copy.deepcopy(ANSWER)
    change(changed["comparison"])
    return compare.changes({"a test": [ANSWER]}, {"a test": [changed]}, words)


def test_functions_are_replaced_when_their_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "moved.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "user.py").write_text("from moved import double\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(hooks.HOOKS, "comparison", ("gone:double", "moved:double"))
    hooks.install({"comparison": lambda double: lambda x: -double(x)})
    assert "moved" not in sys.modules
    assert importlib.import_module("user").double(3) == -6
    for name in ("moved", "user"):
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("places", [("gone:double",), ("json:double",)])
def test_a_place_that_a_checkout_lacks_is_named(places, monkeypatch):
    monkeypatch.setitem(hooks.HOOKS, "comparison", places)
    with pytest.raises(LookupError, match=r"HOOKS: .*(comparison|double)"):
        hooks.install({"comparison": lambda function: function})


def test_golden_answers_hold_a_commands_json_and_code(tmp_path, python):
    trace = str(ROOT / "tests/acceptance/trace")
    arguments = ["compare", trace, trace, "--no-initialisation", "--json", "written.json"]
    code = (
        "from golden_answers import plugin; plugin.take_answers(); "
        "from resnet_fn.parity.__main__ import main; "
        f"raise SystemExit(main({arguments!r}))"
    )
    paths = f"{ROOT / 'scripts'}:{ROOT}"
    python("-c", code, PYTHONPATH=paths, GOLDEN=str(tmp_path), GOLDEN_TEST="a test", code=None)
    comparison, command = compare.read_answers(tmp_path)["a test"]
    written = json.loads(Path("written.json").read_text())
    assert comparison["comparison"] == command["command"]["json"] == written
    assert command["command"]["exit"] == (0 if written["agrees"] else 1)
    assert any("verdict" in line for line in command["command"]["printed"])


def test_a_recording_is_dtypes_shapes_and_hashes():
    @dataclasses.dataclass
    class Recorded:
        arrays: dict[str, np.ndarray]
        losses: list[float]
        search: Any = print
        absent: None = None

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    numbers = recordings.numbers_of(Recorded({"fc.weight": array}, [0.5]))
    assert list(numbers) == ["arrays/fc.weight", "losses/0"]
    assert numbers["arrays/fc.weight"].startswith("float32 [2, 3] ")
    assert numbers["losses/0"] == "0.5"
    array[1, 2] = np.nextafter(array[1, 2], np.float32(9))
    assert recordings.numbers_of(Recorded({"fc.weight": array}, [0.5])) != numbers


def test_a_changed_verdict_is_told_first():
    def break_loss(comparison):
        comparison |= {"agrees": False, "first_stage": "loss"}
        comparison["stages"][0]["hints"] = ["a word"]
        comparison["stages"][1]["verdict"] = "DIFFERS"

    found = changes_of(break_loss)
    assert [one.path for one in found if one.decides] == [
        "comparison/agrees",
        "comparison/first_stage",
        "comparison/stages/loss/verdict",
    ]
    assert compare.report(found, 40)[0].startswith("VERDICT a test, answer 0, comparison/agrees")
    assert len(compare.report(found, 2)) == 2


def test_a_stage_is_compared_by_its_name():
    found = changes_of(lambda comparison: comparison["stages"].reverse())
    assert [one.path for one in found] == ["comparison/stages/order"]


def test_renamed_words_fields_and_tests_do_not_differ():
    def rename(comparison):
        comparison["stages"][1]["causes"] = ["net.py:99 (fc): no bias added in the port"]
        del comparison["stages"][1]["hints"]
        comparison["stages"][0]["why"] = "new"

    words = {"texts": [["here", "in the port"]], "paths": [["/hints", "/causes"]]}
    assert changes_of(rename, **words, left_out=["/why$"]) == []
    assert {one.path for one in changes_of(rename)} == {
        "comparison/stages/weights/why",
        "comparison/stages/loss/hints/0",
        "comparison/stages/loss/causes/0",
    }
    table = {"tests": [["^old", "new"]]}
    assert compare.changes({"old_test": [ANSWER]}, {"new_test": [ANSWER]}, table) == []


def test_like_changes_share_a_line():
    def reword(comparison):
        comparison["stages"][1]["hints"] = ["net.py:12 (fc): no bias added in the port"]

    changed = copy.deepcopy(ANSWER)
    reword(changed["comparison"])
    found = compare.changes({"a": [ANSWER] * 3}, {"a": [changed] * 3}, {})
    [line] = compare.report(found, 40)
    assert line.startswith("3 × 'here' → 'in the port'")


def test_a_lost_answer_differs():
    for after in ({}, {"a": [ANSWER]}):
        [change] = compare.changes({"a": [ANSWER, ANSWER]}, after, {})
        assert change.path == "the test"


def test_answers_name_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLDEN", str(tmp_path))
    monkeypatch.setenv("GOLDEN_TEST", "a test")
    plugin.write({"error": f"ValueError: {tmp_path}/trace: it is missing"})
    [[answer]] = compare.read_answers(tmp_path).values()
    assert answer == {"error": "ValueError: ./trace: it is missing"}
