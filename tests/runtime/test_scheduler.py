"""msrun's scheduler process."""

import os
import socket
import subprocess
import sys


def test_a_taken_port_is_named_before_mindspore_tries_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = {
            "MS_ROLE": "MS_SCHED",
            "MS_WORKER_NUM": "2",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str(port),
        }
        done = subprocess.run(
            [sys.executable, "-m", "resnet_fn.train"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **cluster},
        )
    assert (done.returncode, done.stderr) == (
        1,
        f"train: error: master port {port} at 127.0.0.1 cannot be used (OSError: Address already in use); "
        "give msrun another --master_port\n",
    )
