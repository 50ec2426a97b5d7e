"""A process goes on where its console is gone, full or closed; what it opens does not become its console."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = (
    "import os, sys; from resnet_fn.runtime.console import outlive_console; outlive_console()\n"
    "file = open('result', 'w')\n"
    "for stream in (sys.stdout, sys.stderr):\n"
    "    for _ in range(3): print('x' * 100_000, file=stream, flush=True)\n"
    "os.write(1, b'as C code writes')\n"
    "file.write('whole'); file.close()"
)


@pytest.mark.parametrize("console", [">&- 2>&-", "> /dev/full 2>&1", "2>&1 | true", "<&- >&- 2>&-", "> out 2>&1"])
def test_the_work_is_done_without_a_console(console):
    command = f'set -o pipefail; {sys.executable} -c "$0" {console}'
    done = subprocess.run(["bash", "-c", command, CODE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Path("result").read_text() == "whole"
    assert not Path("out").exists() or Path("out").stat().st_size == 6 * 100_001 + 16
