"""A process whose console is full, closed or left by its reader: what it prints is lost, the rest is not."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from resnet_fn.runtime.console import outlive_console
outlive_console()
with open("result", "wb", 0) as file:
    for number in range(50_000):
        print(number, flush=True)
        print(number, file=sys.stderr)
    file.write(b"%d" % file.fileno())
"""


@pytest.mark.parametrize("redirection", ["> /dev/full", "2> /dev/full", "2>&1 | head -n 1", "0<&- >&- 2>&-"])
def test_it_goes_on_and_its_files_hold_what_was_written_to_them(redirection):
    command = f"{shlex.join([sys.executable, '-c', CODE])} {redirection}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(Path("result").read_text()) > 2  # its descriptor is not that of a stream which was closed
