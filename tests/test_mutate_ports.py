"""scripts/mutate_ports: what it changes of a port, and how many wrong ports the ladder accepts."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "mutate_ports"
KINDS = {
    "argument left out",
    "arguments exchanged",
    "axis",
    "buffer made a Parameter",
    "buffer made a Tensor",
    "call left out",
    "condition",
    "constant",
    "evaluation branch",
    "operator",
    "order",
    "Parameter made a Tensor",
    "Parameter made a buffer",
    "state update",
    "statement",
    "term left out",
    "training",
}
PORT = """\
class Net(nn.Cell):
    def __init__(self, width=4):
        super().__init__()
        self.scale = Parameter(Tensor(1.0))
        self.mean = Parameter(Tensor(0.0), requires_grad=False)

    def construct(self, x, y):
        x = ops.relu(self.norm(x))
        x = ops.softmax(
            x, axis=1
        )
        x += 2
        if self.training:
            ops.assign(self.mean, 0.9 * self.mean)
        return self.join(x, y)
"""


@pytest.fixture
def script(monkeypatch) -> ModuleType:
    """Return the modules of the script, by name."""
    monkeypatch.syspath_prepend(str(SCRIPT))
    names = ("chosen", "mutants", "summary", "worker")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = ModuleType("script")
    for name in names:
        setattr(modules, name, importlib.import_module(name))
    return modules


def test_each_kind_of_change_is_made(script):
    mutants = script.mutants.mutants_of(PORT)
    assert {one.kind for one in mutants} == KINDS
    changed = {one.name.partition(" ")[2] for one in mutants}
    for name in (
        "constant: 4 → 5",
        "axis: 1 → 0",
        "order: ops.relu(self.norm(x)) → self.norm(ops.relu(x))",
        "state update: ops.assign(self.mean, 0.9 * self.mean) → pass",
        "training: self.training → (not self.training)",
        "arguments exchanged: self.join(x, y) → self.join(y, x)",
        "buffer made a Parameter: Parameter(Tensor(0.0), requires_grad=False) → "
        "Parameter(Tensor(0.0))",
    ):
        assert name in changed


def test_a_mutant_keeps_its_lines_and_its_name(script):
    mutants = script.mutants.mutants_of(PORT)
    names, sources = ({getattr(one, what) for one in mutants} for what in ("name", "source"))
    assert len(names) == len(sources) == len(mutants)
    for one in mutants:
        assert ast.parse(one.source)
        assert one.source.count("\n") == PORT.count("\n")
        assert int(one.name.partition(".")[0]) == one.line
    [axis] = [one for one in mutants if one.kind == "axis"]
    assert (axis.line, axis.owner, axis.attributes) == (10, "Net", ())


def test_a_seed_always_draws_the_same_mutants(script):
    nets = ["autoencoder", "quantiser"]
    drawn = script.chosen.draw(nets, 40, seed=3)
    assert drawn == script.chosen.draw(nets, 40, seed=3)
    assert drawn != script.chosen.draw(nets, 40, seed=4)
    assert len({(one.net, one.name) for one in drawn}) == 40
    kinds = {
        (net, one.name): one.kind
        for net in nets
        for one in script.mutants.mutants_of(script.worker.source_of(net))
    }
    count = Counter(kinds[one.net, one.name] for one in drawn)
    assert count.keys() == set(kinds.values())
    assert max(count.values()) <= 3


def test_stored_mutants_cover_all_nets_and_kinds(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script.chosen, "FIXED", tmp_path / "fixed.json")
    results = [
        {
            "net": net,
            "name": f"{kind} {number}",
            "kind": kind,
            "truth": truth,
            "why": "",
            "answer": "",
        }
        for net in ("autoencoder", "quantiser")
        for kind in ("axis", "constant", "order")
        for number, truth in enumerate(("differs", "same", "fails"))
    ]
    stored = script.chosen.store(results)
    assert json.loads((tmp_path / "fixed.json").read_text()) == stored
    assert Counter(one["net"] for one in stored) == {"autoencoder": 5, "quantiser": 5}
    assert {one["name"].split()[0] for one in stored} == {"axis", "constant", "order"}
    assert {one["truth"] for one in stored} == {"differs", "same"}


def test_undecided_mutants_are_a_column_of_their_own(script):
    answers = ("differs", "error", "undecided", "named", "accepted", "accepted")
    results = [
        {"net": "a", "name": str(number), "kind": "axis", "truth": "differs", "answer": answer}
        for number, answer in enumerate(answers)
    ]
    results[-1]["truth"] = "same"
    head, row = (
        re.sub(r"\W+", " ", line).strip()
        for line in script.summary.summary(results).splitlines()[1:3]
    )
    assert head == "kind mutants differ found error finding named undecided accepted accused"
    assert row == "axis 6 5 1 1 0 1 1 1 0"
    assert [one["name"] for one in script.summary.survivors(results)] == ["4"]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("nets", "least"),
    [
        (("quantiser", "recommender", "teacher"), 5),
        pytest.param((), 20, marks=pytest.mark.release),
    ],
    ids=["three nets", "all nets"],
)
def test_mutants_that_differ_are_not_accepted(tmp_path, nets, least):
    """The truth of these mutants was decided without the ladder, and is stored."""
    pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
    out = tmp_path / "results.jsonl"
    command = [sys.executable, SCRIPT, *nets, "--fixed", "--jobs", "2", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1400, check=True)
    results = [json.loads(line) for line in out.read_text().splitlines()]
    stored = json.loads((SCRIPT / "fixed.json").read_text())
    stored = [one for one in stored if not nets or one["net"] in nets]
    assert len(results) == len(stored) >= least, done.stdout
    known = {(one["net"], one["name"]) for one in stored if one["answer"] == "accepted"}
    accepted = {
        (one["net"], one["name"])
        for one in results
        if (one["truth"], one["answer"]) == ("differs", "accepted")
    }
    assert accepted <= known
    assert not [one for one in results if (one["truth"], one["answer"]) == ("same", "differs")]
