import os
import signal
import threading

import pytest

from resnet_fn.runtime.signals import StopRequest, agreed_signal


@pytest.mark.parametrize(
    ("number", "votes"),
    [(signal.SIGTERM, [1, 0, 0]), (signal.SIGINT, [0, 1, 0]), (signal.SIGHUP, [0, 0, 1])],
)
def test_the_first_signal_counts_and_further_ones_change_nothing(number, votes):
    before = signal.getsignal(signal.SIGINT)  # of a shell's background job: SIG_IGN
    with StopRequest() as request:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # nothing to lose yet
        request.install_handlers()
        assert request.stop_flags().tolist() == [0, 0, 0]
        for sent in (number, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), sent)
        assert request.stop_flags().tolist() == votes
    assert signal.getsignal(signal.SIGINT) is before


def test_a_blocked_sigint_is_waited_for_in_a_thread_that_ends():
    before = threading.active_count()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with StopRequest() as request:
            request.install_handlers()
            os.kill(os.getpid(), signal.SIGINT)
            pause = threading.Event()
            while not request.stop_flags().any():
                assert not pause.wait(0.01)
            assert request.stop_flags().tolist() == [0, 1, 0]
        assert threading.active_count() == before
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def test_all_ranks_stop_for_one_signal():
    """From the sums of the votes: whoever got what, the answer is the same on every rank."""
    assert agreed_signal([0, 0, 0]) == 0
    assert agreed_signal([0, 3, 1]) == signal.SIGINT
    assert agreed_signal([1, 3, 1]) == agreed_signal([2, 0, 0]) == signal.SIGTERM
    assert agreed_signal([0, 0, 2]) == signal.SIGHUP
