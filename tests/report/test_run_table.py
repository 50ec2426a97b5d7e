"""The table of runs: best values, differing settings."""

import json
import statistics
from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.report.run_table import EvaluatedRun, read_run, run_table


def run(top1, seed=0, updates=(10, 20), loss=0.5, **settings):
    recipe = {"name": "digits", "model": "resnet20", "seed": seed, "milestones": []} | settings
    *earlier, last = ({"event": "eval", "update": update} for update in updates)
    earlier = [{**event, "top1": top1 - 0.1, "loss": 1.0} for event in earlier]
    return EvaluatedRun(recipe, [*earlier, {**last, "top1": top1, "loss": loss}])


def stored(recipe, **options):
    """An evaluated run with this recipe in its folder."""
    Path("config.json").write_text(json.dumps({"recipe": recipe, "options": options}))
    return read_run(Path(), run(0.5).evaluations)


def cells(line):
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


def test_seeds_of_one_recipe_become_mean_and_deviation():
    runs = {
        "a": run(0.96),
        "b": run(0.98, 1, loss=0.6, name="renamed"),
        "c": run(0.97, 2, loss=0.7),
        "d": run(0.9, 5, model="resnet8", milestones=[3.0, 4.0]),
    }
    (head, first, second), notes = run_table(runs)
    titles = "recipe|runs|seeds|update|last top-1|best top-1|last loss"
    assert cells(head) == titles.split("|")
    mean = statistics.mean([96, 98, 97])
    deviation = statistics.stdev([96, 98, 97])
    accuracy = f"{mean:.2f}% ± {deviation:.2f}"
    label = "digits, model resnet20, milestones none"
    assert cells(first) == [label, "3", "0,1,2", "20", accuracy, accuracy, "0.6000 ± 0.1000"]
    label = "digits, model resnet8, milestones 3.0,4.0"
    assert cells(second) == [label, "1", "5", "20", "90.00%", "90.00%", "0.5000"]
    assert notes == []


def test_runs_on_different_data_get_separate_rows():
    runs = {
        folder: stored(run(0, seed).recipe, data_dir=folder)
        for seed, folder in enumerate(("", "here", "here/", "there"))
    }
    rows = [cells(line)[:3] for line in run_table(runs)[0][1:]]
    here = f"digits, data_dir {Path.cwd()}"
    assert rows == [
        ["digits, data_dir none", "1", "0"],
        [f"{here}/here", "2", "1,2"],
        [f"{here}/there", "1", "3"],
    ]


def test_runs_of_two_versions_are_one_line():
    now = to_dict(Recipe(name="digits", seed=1))
    old = {"name": "digits", "seed": 0}  # all other settings are newer
    lines, _ = run_table({"old": stored(old), "now": stored(now)})
    assert [cells(line)[:3] for line in lines[1:]] == [["digits", "2", "0,1"]]


def test_runs_of_fit_are_lines_of_their_own():
    """Their nets and arrays may differ; a metric that does not exist is no number that is not
    finite.
    """
    runs = {name: run(0.9, seed, name="fit", dataset="own") for seed, name in enumerate("ab")}
    for event in runs["b"].evaluations:
        del event["top1"]
    rows = [cells(line) for line in run_table(runs)[0][1:]]
    assert rows == [
        ["fit a", "1", "0", "20", "90.00%", "90.00%", "0.5000"],
        ["fit b", "1", "1", "20", "-", "-", "0.5000"],
    ]


def test_unequal_updates_and_equal_seeds_are_warned_of():
    lines, notes = run_table(
        {"a": run(0.96), "b": run(0.98, 1, updates=(10,)), "c": run(0.9, 1, loss=None)}
    )
    assert cells(lines[1])[3] == "10..20"
    assert cells(lines[1])[-1] == "not finite"
    assert notes == [
        "warning: the runs of one recipe have different last updates: a at 20, b at 10, c at 20",
        "warning: a, b, c have the same recipe, and some of them the same seed",
    ]


def test_a_folder_without_recipe_or_evaluation_is_named(raises_line):
    Path("run").mkdir()
    with raises_line("run: contains no config.json", "give a run folder"):
        read_run(Path("run"), [])
    Path("run/config.json").write_text(json.dumps({"recipe": {"seed": 1}, "options": {}}))
    trained = {"event": "train", "update": 1}
    with raises_line("run: has not been evaluated yet", "wait for the first evaluation"):
        read_run(Path("run"), [trained])
    event = {"event": "eval", "update": 1}
    run = read_run(Path("run"), [trained, event])
    assert (run.recipe["seed"], run.recipe["epochs"], run.evaluations) == (1, 20, [event])


def test_multi_label_runs_have_a_table_with_map():
    evaluations = [{"update": 10, "map": value, "loss": 0.5} for value in (0.75, 0.5)]
    recipe = {"name": "digits", "seed": 0, "multi_label": True}
    several = EvaluatedRun(recipe, evaluations)
    lines, _ = run_table({"a": several})
    assert cells(lines[0])[-3:] == ["last mAP", "best mAP", "last loss"]
    assert cells(lines[1])[-3:] == ["50.00%", "75.00%", "0.5000"]
    with pytest.raises(
        ValueError, match=r"the metric is top-1, but other runs have mAP; make two tables"
    ):
        run_table({"b": run(0.5), "a": several})
