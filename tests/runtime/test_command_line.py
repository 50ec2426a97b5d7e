"""What is printed for a run to go on must be what its user typed, launchers included."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.runtime.console import LAUNCHED_BY

TYPED = (
    "import json; from resnet_fn.runtime.console import typed_command; "
    "print(json.dumps(typed_command()))"
)
COMMAND = (sys.executable, "-c", TYPED)
WORKER = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "3"}
# As msrun does with --join True: it starts what stands from "python" on, and waits.
MSRUN = """
import subprocess, sys
words = sys.argv[sys.argv.index("python") + 1 :]
sys.exit(subprocess.run([sys.executable, *words]).returncode)
"""


def typed(*words, **environment):
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_workers_command_is_that_of_its_msrun():
    Path("msrun").write_text(MSRUN)
    flags = shlex.split("--worker_num 3 --join True --log_dir 'my logs'")
    words = [*flags, "python", "-c", TYPED, "--epochs", "5"]
    assert typed(sys.executable, "./msrun", *words, **WORKER) == ["msrun", *words]


def test_a_worker_rebuilds_an_ended_msruns_command():
    count = ["--worker_num", "3", "--local_worker_num", "3"]
    assert typed(*COMMAND, **WORKER) == ["msrun", *count, "--join", "True", *COMMAND]


def test_the_launchers_command_counts_for_its_workers_alone():
    """A process that a worker's environment was copied to, and that msrun did not start, is
    itself.
    """
    launcher = [sys.executable, "-m", "resnet_fn.launch", "--workers", "3", "--"]
    assert typed(*COMMAND, **WORKER, **{LAUNCHED_BY: json.dumps(launcher)}) == launcher
    assert typed(*COMMAND, **{LAUNCHED_BY: json.dumps(launcher)}) == [*COMMAND]


NOTE = "import os; from resnet_fn.runtime.console import background_note; print(background_note())"


@pytest.mark.parametrize("join", ["", "False", "True"])
def test_a_background_run_says_how_to_follow_it(join, says):
    """As the first lines of its log. With --join True, msrun shows the log itself."""
    Path("msrun").write_text(MSRUN)
    words = [*(["--join", join] if join else []), "python", "-c", NOTE]
    variables = {**os.environ, **WORKER, "MS_TOPO_TIMEOUT": "600"}
    with open("worker_0.log", "w") as log:
        subprocess.run(
            [sys.executable, "msrun", *words], stdout=log, env=variables, check=True, timeout=60
        )
    text = Path("worker_0.log").read_text()
    if join == "True":
        assert text == "\n"
        return
    log = Path("worker_0.log").resolve()
    says(text, "msrun has returned", f"tail -f {log}", "kill ", "--join True")
