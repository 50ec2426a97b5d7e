"""What is printed for a run to go on must be what its user typed, launchers included."""

import json
import os
import subprocess
import sys
from pathlib import Path

TYPED = "import json; from resnet_fn.runtime.console import typed_command; print(json.dumps(typed_command()))"
COMMAND = (sys.executable, "-c", TYPED)
WORKER = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "3"}
# As msrun does: what stands from "python" on, below a process of its own.
MSRUN = """
import subprocess, sys
words = sys.argv[sys.argv.index("python") + 1 :]
sys.exit(subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, *words]).returncode)
"""


def typed(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_alone_it_is_the_process_itself():
    assert typed(*COMMAND, "--out-dir", "a b") == [*COMMAND, "--out-dir", "a b"]


def test_of_a_worker_it_is_what_started_all_of_them():
    Path("msrun").write_text(MSRUN)
    words = ["--worker_num", "3", "--log_dir", "my logs", "python", "-c", TYPED, "--epochs", "5"]
    assert typed(sys.executable, "./msrun", *words, **WORKER) == ["msrun", *words]


def test_of_a_worker_that_msrun_has_left_it_is_made_from_what_msrun_told_it():
    count = ["--worker_num", "3", "--local_worker_num", "3"]
    assert typed(*COMMAND, **WORKER) == ["msrun", *count, "--join", "True", *COMMAND]


def test_the_launcher_around_msrun_counts():
    """Flags that are added at the end must reach the workers."""
    Path("msrun").write_text(MSRUN)
    words = [sys.executable, "./msrun", "python", "-c", TYPED]
    Path("outer.py").write_text(f"import subprocess, sys\nsys.exit(subprocess.run({words!r}).returncode)")
    outer = [sys.executable, "outer.py", "resnet_fn.launch", "--workers", "3"]
    assert typed(*outer, **WORKER) == [*outer, "--"]
    assert typed(*outer, "--", "--epochs", "5", **WORKER) == [*outer, "--", "--epochs", "5"]
