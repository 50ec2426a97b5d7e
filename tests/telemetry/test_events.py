import json
from pathlib import Path

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry.events import read_log
from resnet_fn.telemetry.telemetry import Telemetry


def write(*lines):
    Path("metrics.jsonl").write_bytes(b"".join(lines))


def line(update, **more):
    return json.dumps({"event": "train", "update": update, **more}).encode() + b"\n"


def test_damaged_lines_are_named_and_left_out_and_a_torn_last_one_is_left_out(capsys):
    write(line(1), b'{"event": "tr\xffin", "update": 2}\n', line(3), b"\n", b"[4]\n", b'{"update": null}\n', b'{"upda')
    assert [event["update"] for event in read_log(Path("metrics.jsonl"))] == [1, 3]
    named = [f"warning: metrics.jsonl: line {number} is damaged; left out" for number in (2, 4, 5, 6)]
    assert capsys.readouterr().err.splitlines() == named


def test_a_resumed_run_keeps_what_was_logged_up_to_its_checkpoint(capsys):
    kept = [line(1, loss=0.1 + 0.2, lr=1e-7, norms=None), line(2, loss=3.4028234663852886e38)]
    write(*kept, b"\xfe\n", line(3))
    with Telemetry(Path(), Recipe(), RunOptions(progress=False), 2, 5):
        pass
    assert Path("metrics.jsonl").read_bytes() == b"".join(kept)
    assert "line 3 is damaged" in capsys.readouterr().err
