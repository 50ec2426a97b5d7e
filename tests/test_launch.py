"""The launcher's own words: flags, the command that it makes, what it refuses."""

import sys

import pytest

from resnet_fn import launch
from resnet_fn.config.cli import UsageError


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], ["-m", "resnet_fn.train"]),
        (["--", "--epochs", "5"], ["-m", "resnet_fn.train", "--epochs", "5"]),
        (["--", "python", "my.py", "--workers", "3", "--", "x"], ["my.py", "--workers", "3", "--", "x"]),
        (["--", "python3", "-m", "resnet_fn.evaluate"], ["-m", "resnet_fn.evaluate"]),
    ],
)
def test_each_worker_runs_what_follows_the_dashes(words, command):
    given, parsed = launch.parse(["--workers", "4", *words])
    assert given.workers == 4
    assert parsed == [sys.executable, *command]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--workers 0 --nnodes 0",
            "--workers: 0 is too small; give 1 or more; --nnodes: 0 is too small; give 1 or more",
        ),
        ("--workers 3 --nnodes 2 --master-port 1 --master-addr x", "--workers: 3 do not spread evenly over 2 machines"),
        ("--nnodes 2 --node-rank 2 --master-port 1 --master-addr x", "--node-rank: 2 is not in 0..1"),
        (
            "--nnodes 2",
            "--master-port: several machines must agree on one; give 8118; "
            "--master-addr: 2 machines need it; give that of machine 0",
        ),
        ("--nnodes 2 --master-port 1", "--master-addr: 2 machines need it; give that of machine 0"),
        ("--master-port 65536", "--master-port: 65536 is not in 0..65535"),
        ("--worker 2 -- --epochs 5", "unknown argument '--worker'; did you mean --workers?"),
        ("--epochs 5", "unknown argument '--epochs'; put the arguments of resnet_fn.train after --"),
        ("python train.py", "unknown argument 'python'; put the arguments of resnet_fn.train after --"),
    ],
)
def test_wrong_usage_is_one_line(words, message):
    with pytest.raises(UsageError) as error:
        launch.parse(words.split())
    assert str(error.value) == message
