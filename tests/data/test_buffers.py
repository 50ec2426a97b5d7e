"""Memory is given out again once nobody holds it, and never before."""

import os
import subprocess
import sys

import numpy as np
import pytest

from resnet_fn.data.buffers import Buffers


def test_what_is_held_is_not_given_out_and_what_is_let_go_is():
    buffers = Buffers((2, 3), limit=2)
    held = [buffers.take() for _ in range(5)]
    assert len({array.ctypes.data for array in held}) == 5
    assert all((array.shape, array.dtype) == ((2, 3), np.float32) for array in held)
    kept = {array.ctypes.data for array in held[:2]}
    held.clear()
    again = [buffers.take() for _ in range(2)]
    assert {array.ctypes.data for array in again} == kept


def test_a_view_holds_an_array_too():
    buffers = Buffers((4,))
    view = buffers.take()[1:]
    assert not np.shares_memory(buffers.take(), view)


ARENAS = """
import ctypes, threading
from resnet_fn.data.buffers import limit_arenas
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
