"""This module handles MindSpore's scheduler, a process that msrun starts beside the workers."""

import contextlib
import os
import signal
import socket
import threading
import time

from resnet_fn.runtime.job import end_workers, running_workers, workers_of
from resnet_fn.runtime.msrun import claim_port, shell_code
from resnet_fn.runtime.parent import die_with_parent, starter_waits
from resnet_fn.runtime.port import has_connections
from resnet_fn.runtime.signals import SIGNALS, heeded, in_main_thread

_PATIENCE = 20.0  # seconds, as long as MindSpore itself tries to reconnect to a lost scheduler
_CONNECT = 5.0
# seconds in which MindSpore's scheduler should notice that all workers have ended
_AFTER_WORKERS = 10.0
_UNUSED = 60.0  # seconds without a worker, after which a scheduler that msrun left behind ends


def _address() -> tuple[str, int]:
    return os.environ.get("MS_SCHED_HOST", "127.0.0.1"), int(os.environ.get("MS_SCHED_PORT", "0"))


def check_port() -> None:
    """Raise ValueError and end this job's workers if the scheduler's port cannot be used."""
    try:
        claim_port(*_address())
    except ValueError as problem:
        # the workers would wait 600 s
        end_workers(workers_of(os.getpid()), signal.SIGTERM, f"error: {problem}")
        raise


def wait_for_workers_then_exit() -> None:
    """Fork a child process that becomes MindSpore's scheduler, and wait in this process until the
    child ends.

    Only the child returns. After a signal, the child runs until the local workers, which may save,
    have ended. Outside the main thread, nothing happens. Call this function before any thread
    starts: a fork copies no threads.
    """
    if not in_main_thread():
        return
    parent = os.getpid()
    asked = list[int]()
    # if SIGCHLD were ignored, the child's exit code would be lost
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in heeded():
        signal.signal(number, lambda got, _: asked.append(got))
    # MindSpore's scheduler holds the GIL until it ends, so that no signal handler could run in its
    # process.
    child = os.fork()
    if not child:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(parent, signal.SIGKILL)
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    needed = time.monotonic()
    while not (end := os.waitpid(child, os.WNOHANG))[0]:
        if not asked or running_workers():
            needed = time.monotonic()
        elif time.monotonic() > needed + _AFTER_WORKERS:
            os._exit(128 + asked[0])  # the child ends with this process
        time.sleep(0.05)
    os._exit(shell_code(end[1]))


def end_unused_scheduler() -> None:
    """Fork a process that ends this scheduler when its job cannot start any more.

    msrun leaves a scheduler without workers if, for example, `--local_worker_num` is missing. The
    scheduler would use the port for 600 s. A scheduler that msrun did not start is left alone.
    """
    if "MS_TOPO_TIMEOUT" not in os.environ:  # msrun sets it
        return
    scheduler = os.getpid()
    if not in_main_thread() or os.fork():
        return
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(scheduler, signal.SIGKILL)
    used = time.monotonic()
    while time.monotonic() < used + _UNUSED:
        time.sleep(_UNUSED / 10)
        if starter_waits(scheduler) or has_connections(_address()[1]) or running_workers():
            used = time.monotonic()
    reason = f"error: no worker has connected for {_UNUSED:.0f} s, and msrun has ended"
    fix = "give msrun --local_worker_num N, too, for N workers on this machine"
    os.write(2, f"{reason}; {fix}\n".encode())
    os.kill(scheduler, signal.SIGKILL)
    os._exit(1)


def end_with_scheduler() -> None:
    """Start a thread that ends this worker if the scheduler is lost, even during an all-reduce."""
    if in_main_thread():
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=_wait_for_loss, args=(read,), name="scheduler", daemon=True).start()


def _wait_for_loss(signals: int) -> None:
    # Within 30 s of a loss MindSpore sends SIGTERM to this process. `StopRequest` only records the
    # signal, and an all-reduce waits for MS_CPU_COMM_OP_TIMEOUT. After a SIGTERM, this thread
    # therefore tests the connection.
    while signal.SIGTERM not in os.read(signals, 1):
        pass
    answered = time.monotonic()
    while time.monotonic() < answered + _PATIENCE:
        time.sleep(2)
        with contextlib.suppress(OSError):
            socket.create_connection(_address(), timeout=_CONNECT).close()
            answered = time.monotonic()
    host, port = _address()
    scheduler = f"msrun's scheduler at {host}, port {port}"
    causes = "a lost machine or worker, or a clock that was set forward"
    fix = f"check that machine and its scheduler.log ({causes})"
    os.write(2, f"error: {scheduler} does not answer; {fix}\n".encode())
    os._exit(1)
