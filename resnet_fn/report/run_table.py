"""`run_table` compares groups of runs.

Runs are in one group if their recipes differ only in the seed or the name.
"""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.declaration import CUSTOM
from resnet_fn.config.stored import recipe_from_dict
from resnet_fn.config.values import show_value, to_dict
from resnet_fn.evaluation.task import task_of
from resnet_fn.runtime.console import aligned

_ALIKE = ("seed", "name")  # settings that may differ within a group
_DATA = ("data_dir", "train_list", "val_list")  # options that must not differ within a group


class EvaluatedRun(NamedTuple):
    """A run that was evaluated: its recipe with the paths of the data, and one dict for each
    evaluation.
    """

    recipe: dict[str, Any]
    evaluations: list[dict[str, Any]]


def read_run(folder: Path, events: Sequence[dict[str, Any]]) -> EvaluatedRun:
    """Read the recipe of a run from `folder`, and select the evaluations from `events`, the log of
    the run.
    """
    config = RunFolder(folder).config()
    if not config:
        raise ValueError(f"{folder}: contains no config.json of a run; give a run folder")
    options = config["options"]
    recipe = to_dict(recipe_from_dict(config["recipe"])) | {
        name: os.path.abspath(options[name]) for name in _DATA if options.get(name)
    }
    evaluations = [event for event in events if event["event"] == "eval"]
    if not evaluations:
        raise ValueError(f"{folder}: has not been evaluated yet; wait for the first evaluation")
    return EvaluatedRun(recipe, evaluations)


def group_runs(recipes: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Group runs {run: recipe} whose recipes differ only in the seed or the name, and return {title
    of group: runs}.
    """
    groups: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        key = json.dumps(
            {setting: value for setting, value in recipe.items() if setting not in _ALIKE}
        )
        # nothing shows whether two runs have the same net and arrays
        if recipe.get("dataset") == CUSTOM:
            key = name
        groups.setdefault(key, []).append(name)
    first = [recipes[names[0]] for names in groups.values()]
    keys = dict.fromkeys(key for recipe in first for key in recipe if key not in _ALIKE)
    differing = [
        key for key in keys if any(recipe.get(key) != first[0].get(key) for recipe in first)
    ]
    titles = {}
    for recipe, names in zip(first, groups.values(), strict=True):
        title = recipe["name"]
        if recipe.get("dataset") == CUSTOM:
            title += f" {names[0]}"
        for key in differing:
            title += f", {key} {show_value(recipe.get(key, '')) or 'none'}"
        titles[title] = names
    return titles


def different_updates(last: Mapping[str, int]) -> list[str]:
    """Return a list with a warning if the updates in `last` ({run: last update}) differ, else an
    empty list.
    """
    where = ", ".join(f"{name} at {update}" for name, update in last.items())
    return [f"warning: the runs of one recipe have different last updates: {where}"] * (
        len({*last.values()}) > 1
    )


def run_table(runs: Mapping[str, EvaluatedRun]) -> tuple[list[str], list[str]]:
    """Return the lines of the table, and warnings about groups with equal seeds or different
    numbers of updates.
    """
    task, *others = (task_of(run.recipe.get("multi_label")) for run in runs.values())
    title = task.title
    if other := next((other for other in others if other is not task), None):
        raise ValueError(
            f"{next(iter(runs))}: the metric is {title}, but other runs have {other.title}; make "
            "two tables"
        )
    rows = [("recipe", "runs", "seeds", "update", f"last {title}", f"best {title}", "last loss")]
    notes = []
    for label, names in group_runs({name: run.recipe for name, run in runs.items()}).items():
        members = [runs[name] for name in names]
        last = [run.evaluations[-1] for run in members]
        updates = [event["update"] for event in last]
        seeds = [run.recipe["seed"] for run in members]
        notes += different_updates(dict(zip(names, updates, strict=True)))
        if len(set(seeds)) < len(seeds):
            notes.append(
                f"warning: {', '.join(names)} have the same recipe, and some of them the same seed"
            )
        values = [
            [event[task.metric] for event in run.evaluations if task.metric in event]
            for run in members
        ]
        known = [row for row in values if row]  # runs of `fit` have none without classes
        best = [max((value for value in row if value is not None), default=None) for row in known]
        reached = str(updates[0]) if len(set(updates)) == 1 else f"{min(updates)}..{max(updates)}"
        rows.append(
            (
                label,
                str(len(names)),
                ",".join(map(str, seeds)),
                reached,
                _mean([event[task.metric] for event in last if task.metric in event], ".2%"),
                _mean(best, ".2%"),
                _mean([event.get("loss") for event in last], ".4f"),
            )
        )
    return aligned(rows, "   "), notes


def _mean(values: Sequence[float | None], form: str) -> str:
    if not values:  # runs of `fit` whose targets are no classes have no top-1
        return "-"
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return "not finite"
    text = format(statistics.mean(numbers), form)
    if len(numbers) < 2:
        return text
    return f"{text} ± {format(statistics.stdev(numbers), form).removesuffix('%')}"
