"""What a run's log holds, and that the other ranks' twin leaves no trace."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry import telemetry as module
from resnet_fn.telemetry.telemetry import SilentTelemetry, Telemetry, open_telemetry

EVENT = {"event": "train", "update": 1, "loss": 2.0, "accuracy": 0.0, "lr": 0.1, "images_per_second": 1.0}
OPTIONS = RunOptions(progress=False)


def test_a_number_that_is_not_finite_is_null_in_the_log(tmp_path):
    with open_telemetry(tmp_path, Recipe(), OPTIONS, 0, 1) as telemetry:
        telemetry.advance(0, 1, {**EVENT, "loss": float("nan"), "norms": {"gradient": {"fc": float("inf")}}})
    (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert row["loss"] is None
    assert row["norms"] == {"gradient": {"fc": None}}


def test_the_silent_twin_takes_the_same_calls_and_leaves_nothing(capsys):
    with open_telemetry(None, Recipe(), RunOptions(), 0, 1) as telemetry:
        assert type(telemetry) is SilentTelemetry
        telemetry.first_batch(np.zeros((1, 1, 2, 2), np.float32), np.zeros(1, np.int32), ["a"])
        telemetry.advance(0, 1, dict(EVENT))
        telemetry.evaluated({"event": "eval", "update": 1, "loss": 1.0})
        telemetry.checkpointed([{"event": "checkpoint", "update": 1, "stall_seconds": 0.1}])
        telemetry.flush()
        telemetry.say("a line")
    assert capsys.readouterr() == ("", "")
    assert not list(Path().iterdir())
    calls = [name for name in vars(Telemetry) if not name.startswith("_")]
    for name in (*calls, "__exit__"):
        twin = vars(SilentTelemetry)[name]
        assert inspect.signature(twin) == inspect.signature(vars(Telemetry)[name]), name


def test_a_log_is_cut_where_the_run_goes_on(tmp_path):
    """Events of later updates go, and a line that the fault tore."""
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({**EVENT, "update": update}) + "\n" for update in (1, 2, 3)) + '{"event": "tra')
    with open_telemetry(tmp_path, Recipe(), OPTIONS, 2, 3) as telemetry:
        telemetry.advance(0, 1, {**EVENT, "update": 3, "loss": 5.0})
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["update"], row["loss"]) for row in rows] == [(1, 2.0), (2, 2.0), (3, 5.0)]


def test_an_evaluation_is_in_the_file_at_once(tmp_path):
    with open_telemetry(tmp_path, Recipe(), OPTIONS, 0, 1) as telemetry:
        telemetry.evaluated({"event": "eval", "update": 1, "loss": 1.0, "top1": 0.5})
        assert json.loads((tmp_path / "metrics.jsonl").read_text())["top1"] == 0.5


@pytest.mark.parametrize("progress", [True, False])
def test_without_a_terminal_there_are_plain_lines_now_and_then(tmp_path, capsys, monkeypatch, progress):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with open_telemetry(tmp_path, Recipe(), RunOptions(progress=progress), 0, 1) as telemetry:
        telemetry.advance(0, 2, dict(EVENT))
    line = "epoch 1/2, update 1: loss 2.0000, acc 0.0%, lr 0.1, 1 images/s\n"
    assert capsys.readouterr() == (line if progress else "", "")
