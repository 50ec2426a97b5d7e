"""These functions name the images that `predict` reads: image files, images in folders, and lines
of lists.
"""

import codecs
import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from resnet_fn.config.path_hints import near_path
from resnet_fn.config.printing import say
from resnet_fn.config.reading import open_user_file
from resnet_fn.data.cells import from_cell
from resnet_fn.data.sources.files import (
    ENDINGS,
    describe_left_out,
    how_to_convert,
    is_image,
    list_images,
)

STDIN = "-"  # in place of a list's path
_LIST_ENDINGS = (".txt", ".lst", ".list", ".csv", ".tsv")
_SEPARATORS = re.compile("[\t,;]")  # between a path and what follows it, for example a class
_HEADERS = ("path", "file", "filename", "image", "name")  # names of a list's first column

_LONGEST = 1 << 20  # bytes of a line
_BLOCK = 1 << 16  # number of bytes of a list that are read at a time, at most
_MOST_EMPTY = 1 << 16  # empty lines or names in a row, of which a device has any number


def is_list(path: str) -> bool:
    """Return True if `path` is "-" or has the ending of a list, such as ".txt"."""
    return path == STDIN or (path.lower().endswith(_LIST_ENDINGS) and not os.path.isdir(path))


def find_images(paths: Iterable[str | Path]) -> list[str]:
    """Return the given image files and the images in the given folders.

    Print a line about names that are left out.
    """
    files: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside, left_out = list_images(path)
            say(*describe_left_out(path, left_out), stream=sys.stderr)
            if not inside:
                fix = how_to_convert(left_out) or "give image files or their folder"
                raise ValueError(f"{path}: contains no images ({', '.join(ENDINGS)}); {fix}")
            files += [os.path.join(path, name) for name in inside]
        elif path.exists() or path.is_symlink():
            # a link to nothing counts as a file that cannot be read
            files.append(str(path))
        else:
            fix = near_path(path, "give an image file or a folder")
            raise ValueError(f"{path}: does not exist; {fix}")
    return files


def read_list(file: str) -> Iterator[str]:
    """Return the images that a list names, "-" for stdin. Lines are read when they are needed.

    A line is a path, relative to the current folder or else to the list's folder. What follows a
    path is ignored, for example a class. So are empty lines, lines that begin with "#" unless a
    file has this name, and a header. Paths may be separated by NUL bytes, as `find -print0` does.

    Raises a ValueError if the list cannot be read.
    """
    if file == STDIN:
        return _names(contextlib.nullcontext(sys.stdin.buffer), STDIN)
    try:
        opened = open_user_file(file)  # `_names` closes it
    except FileNotFoundError:
        raise ValueError(
            f"{file}: does not exist; {near_path(file, 'give a list of images')}"
        ) from None
    except OSError as error:
        raise _unreadable(file, error) from None
    return _names(opened, file)


def _unreadable(file: str, error: OSError) -> ValueError:
    return ValueError(f"{file}: cannot be read ({error.strerror}); give another list")


def _names(opened: contextlib.AbstractContextManager[BinaryIO], file: str) -> Iterator[str]:
    folder = os.path.dirname(file)
    try:
        with opened as source:
            for number, line in enumerate(_decoded(source, file)):
                if name := _path_in(line, folder, is_first=number == 0):
                    yield name
    except OSError as error:
        raise _unreadable(file, error) from None


def _decoded(source: Any, file: str) -> Iterator[str]:
    """Yield the lines of a list in UTF-8 or UTF-16. In other lists, a file name keeps its bytes.

    If the list begins as that of `find -print0`, only NUL bytes separate names. Raises ValueError
    for what may be no list and never end: a line without end, or nothing but empty names.
    """
    # `read1` waits only for what another program writes next.
    blocks = iter(functools.partial(source.read1, _BLOCK), b"")
    first = next(blocks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell writes
        yield from (first + b"".join(blocks)).decode("utf-16", "replace").splitlines()
        return
    end, before = (b"\0", b"") if b"\0" in first else (b"\n", b"\r")
    rest = b""
    empty = 0
    for block in itertools.chain([first.removeprefix(codecs.BOM_UTF8)], blocks):
        *lines, rest = (rest + block).split(end)
        empty = 0 if any(lines) else empty + len(lines)
        if len(rest) > _LONGEST or empty >= _MOST_EMPTY:
            raise ValueError(f"{file}: is no list of paths; give a text file with a path a line")
        for line in lines:
            yield os.fsdecode(line.removesuffix(before))
    yield os.fsdecode(rest)


def _path_in(line: str, folder: str, is_first: bool) -> str:
    """Return the path with which a line of a list begins, or "" if the line names no image."""
    column = _SEPARATORS.split(line, 1)[0]
    starts = (line, column, line.rpartition(" ")[0], line.partition(" ")[0])
    parts = [from_cell(part.strip().strip('"')) for part in starts]
    for part in filter(None, (line, *parts)):
        for path in (part, part.replace("\\", "/")):  # as Windows writes
            for candidate in (path, os.path.join(folder, path)):
                if os.path.isfile(candidate) or os.path.islink(candidate):
                    return candidate
    is_header = is_first and parts[1].lower() in _HEADERS
    if is_header or line.strip()[:1] in ("", "#"):
        return ""
    return next(filter(is_image, parts), line.strip())  # a file that does not exist
