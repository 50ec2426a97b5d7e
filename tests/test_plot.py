"""The command `plot`: curves of runs, tables, broken logs."""

import json
import re
import sys
from pathlib import Path

import pytest

from resnet_fn import plot


@pytest.fixture
def runs():
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        rows = [
            {"event": "train", "update": u, "loss": 2 / u, "accuracy": 0.1 * u, "lr": 0.1}
            for u in range(1, 9)
        ]
        # a loss that was not finite
        rows.append({"event": "eval", "update": 8, "loss": None, "top1": 0.9})
        # a line that is being written
        text = "".join(json.dumps(row) + "\n" for row in rows) + '{"event": "tra'
        Path("runs", name, "metrics.jsonl").write_text(text)
    return ["runs/a", "runs/b"]


def write_recipes(runs):
    """Give the runs recipes that differ in the seed only."""
    for seed, name in enumerate(runs):
        recipe = {"name": "digits", "seed": seed, "epochs": 3}
        Path(name, "config.json").write_text(json.dumps({"recipe": recipe, "options": {}}))


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_draws_the_same_file_twice(runs, ending, magic, capsys):
    for name in ("one", "two"):
        assert plot.main([*runs, "--out", f"{name}.{ending}"]) == 0
    assert capsys.readouterr().out.startswith(f"curves of runs/a, runs/b: one.{ending}\n")
    assert Path(f"one.{ending}").read_bytes().startswith(magic)
    assert Path(f"one.{ending}").read_bytes() == Path(f"two.{ending}").read_bytes()


def test_names_without_a_font_show_their_codes(runs, capsys):
    """No warning of matplotlib's, which would be an error here; and a line that names the
    letters.
    """
    letter = chr(0x10FFFD)  # of private use: no font has it
    Path("runs/a").rename(f"runs/猫{letter}")
    assert plot.main([f"runs/猫{letter}", "runs/b", "--out", "curves.svg"]) == 0
    assert re.search(
        r"^warning: no installed font has .*; the names show their codes", capsys.readouterr().err
    )
    assert "U0010fffd" in Path("curves.svg").read_text()


def test_seeds_of_one_recipe_share_a_line(runs):
    events = {name: plot.read_events(Path(name)) for name in runs}
    # without recipes
    assert plot.lines_of(events) == ({name: [rows] for name, rows in events.items()}, [])
    write_recipes(runs)
    events["runs/b"].append({"event": "train", "update": 9, "loss": 1.0})
    lines, warnings = plot.lines_of(events)
    assert lines == {
        "runs/a, runs/b: mean of 2 seeds, band ± standard deviation": [*events.values()]
    }
    assert warnings == [
        "warning: the runs of one recipe have different last updates: runs/a at 8, runs/b at 9"
    ]
    # of the same seed: no mean
    Path("runs/b/config.json").write_text(Path("runs/a/config.json").read_text())
    assert [*plot.lines_of(events)[0]] == runs


def test_missing_and_empty_logs_are_named(runs, raises_line):
    for place in ("runs/c", "runs"):
        hint = "give one of the runs in runs: runs/a, runs/b"
        with raises_line(f"{place}: contains no metrics.jsonl; {hint}"):
            plot.read_events(Path(place))
    Path("runs/b/metrics.jsonl").write_text("")
    with raises_line("runs/b/metrics.jsonl: is still empty; wait for the first update"):
        plot.read_events(Path("runs/b"))


def test_the_table_needs_no_matplotlib(runs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write_recipes(runs)
    assert plot.main([*runs, "--table"]) == 0
    out, err = capsys.readouterr()
    row = "digits 2 0,1 8 90.00% ± 0.00 90.00% ± 0.00 not finite"
    assert " ".join(out.splitlines()[1].split()) == row
    assert err == ""
    with pytest.raises(
        ValueError, match=r"^plot needs matplotlib; run pip install '\.\[plots\]' in"
    ):
        plot.main(runs)
