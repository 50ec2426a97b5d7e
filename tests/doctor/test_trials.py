"""What cannot be done is not tried, and says so; the list itself."""

import pytest

from resnet_fn.doctor import trials
from resnet_fn.doctor.commands import Commands
from resnet_fn.doctor.trials import TRIALS, NotTriedError


def begin(tmp_path, name, workers=2):
    commands = Commands(tmp_path / "out", "CPU", 1, workers)
    commands.begin(name)
    return commands


@pytest.mark.parametrize("run", [trials.evaluation, trials.export])
def test_what_needs_the_digits_run_is_not_tried_without_it(run, tmp_path):
    with pytest.raises(NotTriedError, match=r"^there is no run of the digits to do it with$"):
        run(begin(tmp_path, "check"))


def test_what_needs_several_workers_is_not_tried_on_one(tmp_path):
    for name, run in (("a", trials.workers), ("b", trials.batchnorm)):
        with pytest.raises(NotTriedError, match=r"^--workers 1$"):
            run(begin(tmp_path, name, workers=1))


def test_each_check_says_what_is_judged_and_what_it_means():
    names = [
        "doctor",
        "ladder",
        "golden",
        "evaluation",
        "workers",
        "batchnorm",
        "overflow",
        "resume",
        "export",
        "speed",
    ]
    assert [trial.name for trial in TRIALS] == names
    assert all(trial.judged and trial.means for trial in TRIALS)
