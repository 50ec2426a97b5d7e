"""Settings of the memory allocator hold, and freed memory is used again."""

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
def test_threads_share_one_malloc_arena_unless_set_otherwise(environment, arenas, python):
    done = python("-c", ARENAS, code=None, without="MALLOC_ARENA_MAX", **environment)
    assert (done.stdout, done.stderr) == (f"{arenas}\n", "")


FREED = """
import ctypes, resource
import numpy as np
from resnet_fn.runtime.malloc import keep_freed
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: no huge pages, whose number depends on free memory
if KEEP:
    keep_freed()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    held = [np.ones(3_900_000) for _ in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_used_again_without_a_fault(python):
    """Ten times 125 MB: each comes from the system, or the first alone."""
    faults = [
        int(python("-c", FREED.replace("KEEP", f"{on}"), without="MALLOC_").stdout)
        for on in (True, False)
    ]
    assert 9 * faults[0] < faults[1]
