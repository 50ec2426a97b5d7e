"""Bits depend on nothing that differs from process to process: all CPUs of the machine, real
processes, two nets.
"""

import os
import shlex
import shutil

import pytest

from resnet_fn.runtime.process import EXACT_THREADS

RUN = shlex.split(
    "-m resnet_fn.train --dataset synthetic --synthetic-samples 384 --epochs 1 "
    "--batch-size 32 --image-size 32 --checkpoint-every 6 --keep-last 2 "
    "--no-progress"
)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.release
@pytest.mark.parametrize(("model", "count"), [("resnet20", 5), ("resnet18", 3)])
def test_several_processes_compute_the_same_bits(python, last_state, tmp_path, model, count):
    """MindSpore tries 1, 2, 4 … threads in a kernel's first launches, and again in a process that
    resumes.

    With the default threads, up to the number that this is promised for.
    """
    threads = (
        ("--threads", str(EXACT_THREADS)) if len(os.sched_getaffinity(0)) > EXACT_THREADS else ()
    )
    runs = [tmp_path / str(number) for number in range(count)]
    for run in runs:
        python(*RUN, "--model", model, *threads, "--out-dir", run, seconds=300)
    update = last_state(runs[0])[0]["update"]
    expected = last_state(runs[0])[1]
    assert update == 12
    assert all(last_state(run)[1] == expected for run in runs)
    shutil.rmtree(runs[0] / "checkpoints" / "step-00000012")
    assert (
        "resuming after update 6"
        in python(*RUN, "--model", model, *threads, "--out-dir", runs[0]).stdout
    )
    assert last_state(runs[0])[1] == expected
