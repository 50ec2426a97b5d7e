"""What the C library's allocator keeps; elsewhere than with glibc these functions do nothing."""

import ctypes
import os

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_LARGEST, _LARGEST_MMAP, _AT_A_TIME = 2**31 - 1, 32 << 20, 256 << 20  # bytes; glibc refuses a higher mmap threshold


def limit_arenas(limit: int) -> None:
    """Have glibc's malloc keep at most `limit` arenas, unless MALLOC_ARENA_MAX says otherwise.

    Each new thread may take another of the 8 arenas per CPU, and resident memory grows until all of them have seen the
    largest images.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        _set((_M_ARENA_MAX, limit))


def keep_freed() -> None:
    """Have glibc's malloc keep what is freed, for a process that soon asks for as much again, and then ends.

    PyTorch on a CPU gives every tensor's memory back at once, and fresh pages are slow (docs/lab.md).
    """
    _set((_M_MMAP_THRESHOLD, _LARGEST_MMAP), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _AT_A_TIME))


def _set(*options: tuple[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in options:
            mallopt(*option)
