"""A run that goes on where other kernels compute names what differs, in real processes."""

import os

import pytest

TRAIN = ("-m", "resnet_fn.train", "--model", "resnet8", "--image-size", "8", "--batch-size", "480", "--epochs", "1")


@pytest.fixture
def resumed(python):
    """resumed(*words, **variables): the lines about other bits of a run that was begun with the defaults."""
    words = (*TRAIN, "--no-progress", "--out-dir", "run")
    python(*words)

    def lines(*more, **variables):
        output = " ".join(python(*words, *more, **variables).stdout.split())  # long lines are wrapped
        return [part.partition(":")[0] for part in output.split("resuming with ") if " instead of " in part]

    return lines


def test_threads_cpus_and_instructions_that_differ_are_named(resumed):
    cpus = os.sched_getaffinity(0)
    assert resumed() == []
    assert resumed("--threads", "7", ONEDNN_MAX_CPU_ISA="SSE41") == [
        f"thread count 7 instead of {len(cpus)}",
        f"ONEDNN_MAX_CPU_ISA SSE41 instead of {os.environ.get('ONEDNN_MAX_CPU_ISA', 'not set')}",
    ]
    if len(cpus) > 1:
        os.sched_setaffinity(0, {min(cpus)})
        try:
            assert resumed()[0] == f"CPU count 1 instead of {len(cpus)}"
        finally:
            os.sched_setaffinity(0, cpus)
