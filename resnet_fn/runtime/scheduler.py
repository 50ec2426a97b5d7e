"""MindSpore's scheduler, which msrun starts beside the workers: its port, and a worker that has lost it."""

import os
import signal
import socket
import threading
import time

from resnet_fn.runtime.msrun import claim_port
from resnet_fn.runtime.parent import children, waiting_msrun

_PATIENCE = 20.0  # seconds; as long MindSpore itself tries to find a lost scheduler again
_CONNECT = 5.0


def _address() -> tuple[str, int]:
    return os.environ.get("MS_SCHED_HOST", "127.0.0.1"), int(os.environ.get("MS_SCHED_PORT", "0"))


def check_port() -> None:
    """In the scheduler process: whether it can listen. If not, MindSpore would let the workers wait for 600 s.

    Raises:
        ValueError: it cannot; msrun's workers have been told to end.
    """
    host, port = _address()
    try:
        claim_port(host, port)
    except OSError as error:
        if msrun := waiting_msrun():
            for pid in set(children(msrun)) - {os.getpid()}:
                os.kill(pid, signal.SIGTERM)
        # Of a failed job's scheduler msrun shows the lines that hold the word Error.
        reason = f"{type(error).__name__}: {error.strerror}"
        raise ValueError(
            f"master port {port} at {host} cannot be used ({reason}); give msrun another --master_port"
        ) from None


def end_with_scheduler() -> None:
    """In a worker: end it when its scheduler is gone, also where it waits for a dead worker in an all-reduce.

    MindSpore notices the loss within 30 s, closes its collectives, and sends SIGTERM to its own process. Where that
    is a request to stop after this update (`StopRequest`), a worker in an all-reduce would answer it after
    MS_CPU_COMM_OP_TIMEOUT only. So, after a SIGTERM, a thread looks whether the scheduler still answers.
    """
    if threading.current_thread() is threading.main_thread():  # where Python allows signal handlers
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
        try:
            socket.create_connection(_address(), timeout=_CONNECT).close()
            answered = time.monotonic()
        except OSError:
            pass
    host, port = _address()
    os.write(2, f"error: lost msrun's scheduler at {host}, port {port}: its machine is dead or out of reach\n".encode())
    os._exit(1)
