"""What the C library's allocator keeps."""

import os
import subprocess
import sys

import pytest

ARENAS = """
import ctypes, threading
from resnet_fn.runtime.malloc import limit_arenas
limit_arenas(1)
libc = ctypes.CDLL(None)
together = threading.Barrier(6)
def allocate():
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"arenas.xml", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(open("arenas.xml").read().count("<heap nr="))
"""


@pytest.mark.parametrize(("environment", "arenas"), [({}, 1), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_six_threads_share_one_arena_unless_the_user_says_otherwise(environment, arenas):
    """As glibc's own malloc_info counts them."""
    inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", ARENAS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**inherited, **environment})
    assert (done.stdout, done.stderr) == (f"{arenas}\n", "")


FREED = """
import resource
import numpy as np
from resnet_fn.runtime.malloc import keep_freed
if KEEP:
    keep_freed()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    held = [np.ones(3_900_000) for _ in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_used_again_without_a_fault():
    """Ten times 125 MB: each comes from the system, or the first alone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    faults = []
    for keep in ("True", "False"):
        command = [sys.executable, "-c", FREED.replace("KEEP", keep)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        faults.append(int(done.stdout))
    assert 4 * faults[0] < faults[1]
