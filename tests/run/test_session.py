"""A run's state: what it says when its updates are split otherwise than before."""

from resnet_fn.config.options import RunOptions
from resnet_fn.run.session import split_notes, split_of
from resnet_fn.runtime.workers import Workers


def test_a_resume_with_other_micro_batches_or_workers_says_that_other_bits_follow():
    state = {"split": split_of(RunOptions(accumulate=2), Workers(0, 1))}
    assert split_notes(state, RunOptions(accumulate=2), Workers(0, 1)) == []
    assert split_notes({}, RunOptions(accumulate=2), Workers(0, 1)) == []  # an earlier checkpoint does not know
    assert split_notes(state, RunOptions(accumulate=4), Workers(0, 2)) == [
        "resuming with 2 workers instead of 1: the same samples, but other bits follow; "
        "BatchNorm normalises each part on its own",
        "resuming with 4 micro-batches instead of 2: the same samples, but other bits follow; "
        "BatchNorm normalises each part on its own",
    ]
