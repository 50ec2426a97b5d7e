"""What the kit makes of its checks; some of the real ones."""

import json
import os

import pytest

from resnet_fn.doctor.acceptance import accept
from resnet_fn.doctor.commands import CommandError
from resnet_fn.doctor.judges import Answer
from resnet_fn.doctor.machine import describe
from resnet_fn.doctor.trials import TRIALS, NotTriedError, Trial
from resnet_fn.runtime.workers import Workers


def doctor(commands):
    (commands.out / "doctor.json").write_text(json.dumps(describe("CPU", 1, Workers())))
    return Answer(True, "well")


def works(commands):
    (commands.folder / "made").touch()
    return Answer(True, "fine", {"speed": float("nan")})


def fails(commands):
    commands.run("train", "--batch-sise", "3")


def raises(commands):
    raise KeyError("loss")


def not_here(commands):
    raise NotTriedError("no card")


def trials(**runs):
    return [Trial(name, run, "by a bound", "meaning") for name, run in {"doctor": doctor, **runs}.items()]


def test_what_is_well_leaves_a_report_alone(tmp_path, capsys):
    result = accept(tmp_path / "out", "CPU", 1, 2, trials=trials(golden=works, card=not_here))
    assert sorted(os.listdir(tmp_path / "out")) == ["acceptance.json", "acceptance.md", "doctor.json", "logs"]
    assert json.loads((tmp_path / "out" / "acceptance.json").read_text()) == result
    assert (result["broken"], result["not_tried"]) == ([], ["card"])
    assert [check["ok"] for check in result["checks"]] == [True, True, None]
    assert result["checks"][1]["numbers"] == {"speed": None}
    assert result["machine"]["device"] == "CPU"
    assert capsys.readouterr().out.splitlines()[-2] == "not tried card       no card"


def test_a_doctor_that_crashes_leaves_a_report(tmp_path):
    def crashes(commands):
        raise CommandError("python -m resnet_fn.doctor: exit code -6: terminate called")

    result = accept(tmp_path / "out", "CPU", 1, 2, trials=trials(doctor=crashes, golden=works))
    assert result["broken"] == ["doctor"]
    assert result["machine"]["packages"]["mindspore"]
    assert "exit code -6" in (tmp_path / "out" / "acceptance.md").read_text()


def test_a_doctor_that_does_not_start_leaves_the_folder_as_it_was(tmp_path):
    def refuses(commands):
        raise ValueError("device: 'Ascend' is not here")

    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for out, after in (("new", False), ("there", True), ("link", True)):
        with pytest.raises(ValueError, match=r"^device: 'Ascend' is not here$"):
            accept(tmp_path / out, "Ascend", 1, 2, trials=trials(doctor=refuses))
        assert (tmp_path / out).exists() == after
        assert not after or not list((tmp_path / out).iterdir())


def test_what_is_broken_stays_to_be_looked_at(tmp_path):
    runs = {"golden": works, "good": works, "bad": fails, "odd": raises}
    result = accept(tmp_path / "out", "CPU", 1, 2, trials=trials(**runs))
    assert result["broken"] == ["bad", "odd"]
    assert sorted(os.listdir(tmp_path / "out" / "work")) == ["bad", "golden", "odd"]
    assert "train: error: unknown argument '--batch-sise'" in result["checks"][3]["found"]
    assert result["checks"][3]["commands"] == ["python -m resnet_fn.train --batch-sise 3 --device CPU --threads 1"]
    assert result["checks"][4]["found"] == "KeyError: 'loss'"
    assert "| bad | BROKEN |" in (tmp_path / "out" / "acceptance.md").read_text()


def test_all_stays_where_that_is_asked_for(tmp_path):
    accept(tmp_path / "out", "CPU", 1, 2, keep=True, trials=trials(good=works))
    assert (tmp_path / "out" / "work" / "good" / "made").exists()


@pytest.mark.slow
def test_real_checks(tmp_path):
    """Those that need no long training."""
    some = [trial for trial in TRIALS if trial.name in ("doctor", "ladder", "resume", "export")]
    result = accept(tmp_path / "out", "CPU", 1, 2, trials=some)
    assert result["broken"] == [], result["checks"]
    assert result["not_tried"] == ["export"]
    assert os.listdir(tmp_path) == ["out"]
    found = {check["name"]: check["found"] for check in result["checks"]}
    assert found["doctor"] == "all 11 checks ok (doctor.json)"
    assert found["ladder"].endswith(" stages ok (ladder.json)")
    assert found["resume"].endswith(" arrays equal")
