"""Signals are recorded, and stop all workers at one update."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading

import pytest

from resnet_fn.runtime.parent import children
from resnet_fn.runtime.signals import StopRequest, agreed_signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@pytest.mark.parametrize("number", SIGNALS)
def test_only_the_first_signal_counts(number):
    before = signal.getsignal(signal.SIGINT)  # of a shell's background job: SIG_IGN
    with StopRequest() as request:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # nothing to lose yet
        request.install_handlers()
        assert not request.stop_flags().any()
        for sent in (number, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), sent)
        assert request.stop_flags().tolist() == [each == number for each in SIGNALS]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_blocked_sigint_is_awaited_in_a_thread():
    before = threading.active_count()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with StopRequest() as request:
            request.install_handlers()
            os.kill(os.getpid(), signal.SIGINT)
            pause = threading.Event()
            while not request.stop_flags().any():
                assert not pause.wait(0.01)
            assert request.stop_flags().tolist() == [0, 1, 0, 0, 0]
        assert threading.active_count() == before
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def test_all_workers_agree_on_one_signal():
    """From the sums of the votes: whoever got what, the answer is the same on every rank."""
    assert agreed_signal([0, 0, 0, 0, 0]) == 0
    assert agreed_signal([0, 3, 1, 0, 0]) == signal.SIGINT
    assert agreed_signal([1, 3, 1, 0, 0]) == agreed_signal([2, 0, 0, 0, 1]) == signal.SIGTERM
    assert agreed_signal([0, 0, 2, 1, 0]) == signal.SIGHUP
    assert agreed_signal([0, 0, 0, 0, 2]) == signal.SIGUSR2


def recorded(number):
    """The signal that a run stops for when it gets this one; 0 if it goes on."""
    with StopRequest() as request:
        request.install_handlers()
        os.kill(os.getpid(), number)
        return agreed_signal(request.stop_flags())


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_handler_of_the_users_own_stays(number):
    received = []
    before = signal.signal(number, lambda got, _: received.append(got))
    try:
        assert recorded(number) == 0
    finally:
        signal.signal(number, before)
    assert received == [number]


def test_under_nohup_a_hangup_means_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert recorded(signal.SIGHUP) == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_faulthandler_stays(tmp_path):
    """A user's stack dump, which C code writes."""
    with open(tmp_path / "stacks", "w+") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        try:
            assert recorded(signal.SIGUSR1) == 0
        finally:
            faulthandler.unregister(signal.SIGUSR1)
        assert "most recent call first" in (tmp_path / "stacks").read_text()


# the main thread is in C code, as it is while MindSpore compiles
BUSY = """
import ctypes, sys
import resnet_fn
from resnet_fn.runtime.signals import StopRequest
with StopRequest():
    print("ready", flush=True)
    ctypes.CDLL(None).usleep(60_000_000)
"""
WAITING = "import resnet_fn, time; print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "number"),
    [(WAITING, signal.SIGTERM), (BUSY, signal.SIGTERM), (BUSY, signal.SIGUSR1)],
)
def test_process_1_of_a_container_ends_at_signals(code, number, as_process_1):
    words = [*as_process_1, sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout.readline() == "ready\n"
        (first,) = children(outer.pid)
        os.kill(first, number)
        assert outer.wait(timeout=30) == 128 + number
