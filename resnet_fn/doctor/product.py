"""This module measures how much faster oneDNN computes a matrix product with all instructions.

`speedup` runs this file in processes of their own, because oneDNN reads the limit of instructions
once.
"""

import contextlib
import ctypes
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

_SIZE = 768  # rows and columns
_REPEATS = 15
_TURNS = 3
# At least this speedup means that the processor computes AVX-512 at its full width. A processor
# that computes it in two halves has a speedup of about 1.
WHOLE = 1.25


def speedup(variable: str, limit: str) -> float:
    """Return how many times as fast a product is without the limit, or 0.0 if it cannot be
    measured.

    `variable` is the name of the environment variable that sets the limit.
    """
    libraries: list[Path] = []
    if package := importlib.util.find_spec("mindspore"):
        for folder in package.submodule_search_locations or ():
            libraries += sorted(Path(folder).glob("lib/libdnnl.so*"))
    ratios = []
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        for _ in range(_TURNS if libraries else 0):  # in turns, because other programs disturb
            limited, unlimited = (
                float(
                    subprocess.run(
                        [sys.executable, "-P", __file__, str(libraries[0])],
                        env={**os.environ, variable: value},
                        capture_output=True,
                        check=True,
                        timeout=30,
                    ).stdout
                )
                for value in (limit, "ALL")
            )
            ratios.append(limited / unlimited)
    return statistics.median(ratios) if ratios else 0.0


def _seconds(library: str) -> float:
    """Return the shortest time of a product by oneDNN's own function, which uses one thread."""
    size = ctypes.c_int64(_SIZE)
    no = ctypes.c_char(b"N")
    alpha = ctypes.c_float(1.0)
    beta = ctypes.c_float(0.0)
    a, b, c = ((ctypes.c_float * _SIZE**2)() for _ in range(3))
    product = ctypes.CDLL(library).dnnl_sgemm
    times = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        product(no, no, size, size, size, alpha, a, size, b, size, beta, c, size)
        times.append(time.thread_time() - began)
    return min(times)


if __name__ == "__main__":
    sys.stdout.write(f"{_seconds(sys.argv[1])}\n")  # for the parent process
