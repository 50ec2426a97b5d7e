"""What a run's log holds, and that the other ranks' twin leaves no trace."""

import contextlib
import inspect
import json
import resource
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry import telemetry as module
from resnet_fn.telemetry.board import Board
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


@contextlib.contextmanager
def no_room():
    """A full disk: no file of this process may grow (so pytest itself may not write into one meanwhile)."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_told_with_the_files_name(tmp_path):
    text = f"{tmp_path}/metrics.jsonl: cannot be saved (File too large); make room, then give the same command with"
    telemetry = open_telemetry(tmp_path, Recipe(), OPTIONS, 0, 1)
    telemetry.advance(0, 1, dict(EVENT))
    with no_room():
        with pytest.raises(OSError) as caught:
            telemetry.flush()
        telemetry.__exit__(caught.value)  # the error that is on its way is not replaced by that of closing the log
    assert str(caught.value) == f"{text} --out-dir {tmp_path} to go on from the checkpoint before"


def test_a_full_disk_ends_a_run_that_tensorboards_writer_would_wait_in(tmp_path):
    board = Board(tmp_path, Recipe(), OPTIONS, 0)

    def go_on() -> None:
        for update in range(100_000):
            board.scalars({**EVENT, "update": update})

    wanted = r"/events\.out\.tfevents: cannot be saved \(File too large\); make room, then"
    with no_room():
        with pytest.raises(OSError, match=wanted):
            go_on()
        board.close(whole=False)
