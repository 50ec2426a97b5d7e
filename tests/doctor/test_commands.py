"""Real commands: what they say when they fail is told, and nothing is left running."""

import time

import pytest

from resnet_fn.doctor import commands as module
from resnet_fn.doctor.commands import CommandError, Commands


@pytest.fixture
def commands(tmp_path):
    found = Commands(tmp_path / "out", "CPU", 1, 2)
    found.begin("check")
    return found


def test_a_command_that_fails_is_told_in_its_own_words(commands, tmp_path):
    with pytest.raises(CommandError) as error:
        commands.run("train", "--batch-sise", "3")
    assert str(error.value) == (
        "python -m resnet_fn.train --batch-sise 3 --device CPU --threads 1: exit code 2: train: error: unknown "
        "argument '--batch-sise'; did you mean --batch-size or --eval-batch-size or --batch? (logs/check.log)"
    )
    log = (tmp_path / "out" / "logs" / "check.log").read_text()
    assert log.startswith(f"$ {commands.typed[0]}\n")
    assert commands.run("train", "--batch-sise", "3", codes=(0, 2)) == 2
    assert len(commands.typed) == 2
    assert "--batch-sise" in commands.last_error()


def test_a_run_that_ends_before_it_is_killed(commands):
    with pytest.raises(CommandError, match=r"it had saved update 0, and was to be killed after 3 \(logs/check.log\)$"):
        commands.train_and_kill("run", 3, "--batch-sise", "3")


def test_a_command_that_hangs_is_ended(commands, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 0.1)
    began = time.monotonic()
    with pytest.raises(
        CommandError, match=r"^python -m resnet_fn.doctor --device CPU --threads 1: it took more than 0"
    ):
        commands.run("doctor")
    assert time.monotonic() - began < 5


def test_launched_commands_run_on_several_workers(commands):
    with pytest.raises(CommandError) as error:
        commands.launch("train", "--batch-sise", "3")
    assert commands.typed[0] == (
        "python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.train --batch-sise 3 --device CPU --threads 1"
    )
    assert "train: error: unknown argument '--batch-sise'" in str(error.value)
