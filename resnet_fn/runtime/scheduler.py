"""msrun starts MindSpore's scheduler beside the workers; this module handles the scheduler's port, end and loss."""

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

from resnet_fn.runtime.msrun import claim_port, shell_code
from resnet_fn.runtime.parent import children, die_with_parent, msrun_command
from resnet_fn.runtime.signals import SIGNALS, heeded, in_main_thread

_PATIENCE = 20.0  # seconds; as long MindSpore itself tries to find a lost scheduler again
_CONNECT = 5.0
_AFTER_WORKERS = 10.0  # seconds in which MindSpore's scheduler should notice that all workers have ended


def _address() -> tuple[str, int]:
    return os.environ.get("MS_SCHED_HOST", "127.0.0.1"), int(os.environ.get("MS_SCHED_PORT", "0"))


def check_port() -> None:
    """Raise a ValueError and end msrun's workers, which would wait 600 s, if this scheduler cannot use its port."""
    (host, port), parent = _address(), os.getppid()
    try:
        claim_port(host, port)
    except OSError as error:
        if msrun_command():
            for pid in set(children(parent)) - {os.getpid()}:
                os.kill(pid, signal.SIGTERM)
        # Of a failed job's scheduler msrun shows the lines that hold the word Error.
        reason = f"{type(error).__name__}: {error.strerror}"
        wrong = f"master port {port} at {host} cannot be used ({reason})"
        raise ValueError(f"{wrong}; give msrun another --master_port") from None


def wait_for_workers_then_exit() -> None:
    """Fork the scheduler process. The child returns and becomes MindSpore's scheduler; this process waits for it.

    After a signal it waits until this machine's workers have ended, and then 10 s more: the workers often get the same
    signal, and need the scheduler while they save. MindSpore's scheduler holds the GIL until it ends, so that no signal
    handler and no thread could run in its process.

    Threads do not survive a fork: call this before any are started. Outside the main thread nothing is done.
    """
    if not in_main_thread():
        return
    here, asked = os.getpid(), list[int]()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD were ignored, the child's exit code would be lost
    for number in heeded():
        signal.signal(number, lambda got, _: asked.append(got))
    child = os.fork()
    if not child:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(here, signal.SIGKILL)
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    needed = time.monotonic()
    while not (end := os.waitpid(child, os.WNOHANG))[0]:
        if not asked or _has_workers():
            needed = time.monotonic()
        elif time.monotonic() > needed + _AFTER_WORKERS:
            os._exit(128 + asked[0])  # the child ends with this process
        time.sleep(0.05)
    os._exit(shell_code(end[1]))


def _has_workers() -> bool:
    """Return whether this job has workers on this machine; msrun's `tail` processes do not count."""
    program = os.readlink("/proc/self/exe")
    job = {f"{name}={os.environ.get(name)}".encode() for name in ("MS_SCHED_HOST", "MS_SCHED_PORT")}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            theirs = {*job, b"MS_ROLE=MS_WORKER"} <= set(path.read_bytes().split(b"\0"))
            if theirs and os.readlink(path.with_name("exe")) == program:
                return True
    return False


def end_with_scheduler() -> None:
    """Watch the scheduler in a thread, and end this worker if the scheduler is lost, even during an all-reduce.

    MindSpore notices the loss within 30 s and sends SIGTERM to its own process. `StopRequest` takes this as a request
    to stop, which a worker in an all-reduce follows only after MS_CPU_COMM_OP_TIMEOUT. So after a SIGTERM the thread
    checks whether the scheduler still answers.
    """
    if in_main_thread():
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=_wait_for_loss, args=(read,), name="scheduler", daemon=True).start()


def _wait_for_loss(signals: int) -> None:
    while signal.SIGTERM not in os.read(signals, 1):
        pass
    answered = time.monotonic()
    while time.monotonic() < answered + _PATIENCE:
        time.sleep(2)
        with contextlib.suppress(OSError):
            socket.create_connection(_address(), timeout=_CONNECT).close()
            answered = time.monotonic()
    host, port = _address()
    os.write(2, f"error: lost msrun's scheduler at {host}, port {port}: its machine is dead or out of reach\n".encode())
    os._exit(1)
