"""A port that is in use is named with its process and the command that ends it."""

import os
import socket
import sys

import pytest

from resnet_fn.runtime.msrun import claim_port
from resnet_fn.runtime.port import has_connections

LISTENS = "import socket, time; taken = socket.create_server(('127.0.0.1', {})); time.sleep(100)"
SLEEPS = [sys.executable, "-c", "import time; time.sleep(100)"]


def error_at(port):
    with pytest.raises(ValueError, match="Address already in use") as caught:
        claim_port("127.0.0.1", port)
    return caught.value


def test_the_process_that_uses_a_port_is_named(start, wait_for_port, says):
    other = start([sys.executable, "-c", LISTENS.format(start.port)], "")
    wait_for_port(start.port)
    says(
        error_at(start.port),
        f"master port {start.port} at 127.0.0.1 cannot be used",
        f"process {other.pid}, {sys.executable} -c",
        "give another --master_port",
        f"kill {other.pid}",
    )


def test_a_taken_ports_error_names_processes_to_kill(start, wait_for_port, wait_until, says):
    """A signal to a worker, not to the scheduler, ends a job with a checkpoint."""
    scheduler = start([sys.executable, "-c", LISTENS.format(start.port)])
    wait_for_port(start.port)
    named = f"the scheduler of another job, process {scheduler.pid}"
    says(error_at(start.port), named, f"kill {scheduler.pid}")
    worker = start(SLEEPS, "MS_WORKER")
    start(SLEEPS, "MS_WORKER", port=1)
    wait_until(lambda: f"kill {worker.pid}" in str(error_at(start.port)))


def test_an_open_connection_is_seen(start):
    port = start.port
    with socket.create_server(("127.0.0.1", port)):
        assert not has_connections(port)
        with socket.create_connection(("127.0.0.1", port)):
            assert has_connections(port)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_users_process_is_not_to_be_killed(start, wait_for_port, says, python):
    start([sys.executable, "-c", LISTENS.format(start.port)], "")
    wait_for_port(start.port)
    code = (
        "import encodings.idna, os, psutil, sys\n"
        "from resnet_fn.runtime.msrun import claim_port; os.setuid(65534)\n"
        "claim_port('127.0.0.1', int(sys.argv[1]), '--port')"
    )
    last_line = python("-c", code, start.port, code=1).stderr.splitlines()[-1]
    says(last_line, "by another user's process); give another --port")
