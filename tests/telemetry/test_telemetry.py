"""metrics.jsonl and the progress bar, also after a kill."""

import json
from pathlib import Path

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry import telemetry as module
from resnet_fn.telemetry.telemetry import SilentTelemetry, Telemetry

EVENT = {
    "event": "train",
    "update": 1,
    "loss": 2.0,
    "accuracy": 0.0,
    "lr": 0.1,
    "images_per_second": 1.0,
}
OPTIONS = RunOptions(progress=False)


def test_non_finite_numbers_are_null_in_the_log(tmp_path):
    with Telemetry(tmp_path, Recipe(), OPTIONS, 0, 1) as telemetry:
        telemetry.advance(
            0, 1, {**EVENT, "loss": float("nan"), "norms": {"gradient": {"fc": float("inf")}}}
        )
    (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert row["loss"] is None
    assert row["norms"] == {"gradient": {"fc": None}}


def test_silent_telemetry_takes_all_calls_and_writes_nothing(capsys):
    methods = [name for name in vars(Telemetry) if not name.startswith("_")]
    with SilentTelemetry() as telemetry:
        for name in methods:
            assert getattr(telemetry, name)(0, 1, dict(EVENT)) is None
    assert capsys.readouterr() == ("", "")
    assert not list(Path().iterdir())
    assert len(methods) == 7


def test_an_evaluation_is_in_both_files_at_once(tmp_path, board_events):
    with Telemetry(tmp_path, Recipe(), OPTIONS, 0, 1) as telemetry:
        telemetry.evaluated({"event": "eval", "update": 1, "loss": 1.0, "top1": 0.5})
        assert json.loads((tmp_path / "metrics.jsonl").read_text())["top1"] == 0.5
        tags = [value.tag for event in board_events(tmp_path) for value in event.summary.value]
        assert {"eval/loss", "eval/top1"} <= set(tags)


@pytest.mark.parametrize("progress", [True, False])
def test_without_a_terminal_progress_is_plain_lines(tmp_path, capsys, monkeypatch, progress):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with Telemetry(tmp_path, Recipe(), RunOptions(progress=progress), 0, 1) as telemetry:
        telemetry.advance(0, 2, dict(EVENT))
    line = "epoch 1/2, update 1: loss 2.0000, acc 0.0%, lr 0.1, 1 images/s\n"
    assert capsys.readouterr() == (line if progress else "", "")


def test_a_full_disk_error_names_the_file(tmp_path, no_room):
    telemetry = Telemetry(tmp_path, Recipe(), OPTIONS, 0, 1)
    telemetry.advance(0, 1, dict(EVENT))
    with no_room():
        with pytest.raises(OSError) as caught:
            telemetry.flush()
        # the error that is on its way is not replaced by that of closing the log
        telemetry.__exit__(caught.value)
    assert str(caught.value) == (
        f"{tmp_path}/metrics.jsonl: cannot be saved (File too large); raise the limit of a "
        f"file's size (ulimit -f), and run the same command with --out-dir {tmp_path} to resume "
        "from the last checkpoint"
    )


def line(update, **more):
    return json.dumps({"event": "train", "update": update, **more}).encode() + b"\n"


def test_damaged_log_lines_are_named_and_left_out(capsys):
    Path("metrics.jsonl").write_bytes(
        line(1)
        + b'{"event": "tr\xffin", "update": 2}\n'
        + line(3)
        + b'\n[4]\n{"update": null}\n{"update": 3}\n'
        + b'{"event": "", "update": 3}\n{"event": 5, "update": 3}\n'
        + line(-1)
        + b'{"upda'
    )
    assert [event["update"] for event in read_log(Path("metrics.jsonl"))] == [1, 3]
    named = [
        f"warning: metrics.jsonl: line {number} is damaged and was left out"
        for number in (2, *range(4, 11))
    ]
    assert capsys.readouterr().err.splitlines() == named


def test_a_resume_keeps_the_log_until_its_checkpoint(capsys):
    kept = [line(1, loss=0.1 + 0.2, lr=1e-7, norms=None), line(2, loss=3.4028234663852886e38)]
    Path("metrics.jsonl").write_bytes(b"".join([*kept, b"\xfe\n", line(3)]))
    with Telemetry(Path(), Recipe(), RunOptions(progress=False), 2, 5):
        pass
    assert Path("metrics.jsonl").read_bytes() == b"".join(kept)
    assert "line 3 is damaged" in capsys.readouterr().err
