"""These functions set options of glibc's malloc, and do nothing with other C libraries."""

import ctypes
import os

# constants of glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# bytes; glibc refuses a higher mmap threshold
_LARGEST = 2**31 - 1
_LARGEST_MMAP = 32 << 20
_AT_A_TIME = 256 << 20


def limit_arenas(limit: int) -> None:
    """Limit the number of malloc's arenas (memory pools), unless MALLOC_ARENA_MAX is set."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        _set((_M_ARENA_MAX, limit))


def keep_freed() -> None:
    """Make malloc keep freed memory for later tensors, because the kernel provides new memory
    slowly.
    """
    _set(
        (_M_MMAP_THRESHOLD, _LARGEST_MMAP), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _AT_A_TIME)
    )


def release_freed() -> None:
    """Give freed memory back to the kernel, also inside the heap."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set(*options: tuple[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in options:
            mallopt(*option)
