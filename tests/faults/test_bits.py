"""Bits depend on nothing that differs from process to process: all CPUs of the machine, real processes, two nets."""

import hashlib
import os
import shutil

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.runtime.process import EXACT_THREADS

RUN = [
    *("-m", "resnet_fn.train", "--dataset", "synthetic", "--synthetic-samples", "384", "--epochs", "1"),
    *("--batch-size", "32", "--image-size", "32", "--checkpoint-every", "6", "--keep-last", "2", "--no-progress"),
]


def digest(run):
    """The update and the SHA-256 of all arrays of a run's last checkpoint."""
    last = RunFolder(run).newest()
    arrays = {**last.weights, **last.training}
    return last.state["update"], hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("model", ["resnet20", "resnet18"])
def test_five_processes_with_all_cpus_and_one_that_resumes_have_the_same_bits(python, tmp_path, model):
    """MindSpore tries 1, 2, 4 … threads in a kernel's first launches, and again in a process that resumes.

    With the default threads, up to the number that this is promised for.
    """
    threads = ("--threads", str(EXACT_THREADS)) if len(os.sched_getaffinity(0)) > EXACT_THREADS else ()
    runs = [tmp_path / str(number) for number in range(5)]
    for run in runs:
        python(*RUN, "--model", model, *threads, "--out-dir", run, seconds=300)
    expected = digest(runs[0])
    assert expected[0] == 12
    assert [digest(run) for run in runs] == [expected] * 5
    shutil.rmtree(runs[0] / "checkpoints" / "step-00000012")
    assert "resuming after update 6" in python(*RUN, "--model", model, *threads, "--out-dir", runs[0]).stdout
    assert digest(runs[0]) == expected
