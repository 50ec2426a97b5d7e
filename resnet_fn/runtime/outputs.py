"""These functions write the files that a user names, and keep files that something else wrote."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TextIO

from resnet_fn.config.output_paths import fix_for_write
from resnet_fn.config.reading import read_json
from resnet_fn.runtime.disk import is_mount, replace_file

IsOurs = Callable[[Path], bool]  # whether a file is one that the command wrote earlier


def check_output(field: str, path: str | Path, is_ours: IsOurs) -> None:
    """Raise ValueError if `path` is a file that has contents and that `is_ours` does not accept.

    Devices, such as /dev/stdout, are accepted.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size and not is_ours(path):
        raise ValueError(
            f"{field}: {path} exists, and was not written by this command; "
            "move or remove it, or give another path"
        )


def begins_with(text: str) -> IsOurs:
    """Return a function that returns whether a file begins with `text`."""

    def is_ours(path: Path) -> bool:
        with open(path, "rb") as file:
            return file.read(len(text.encode())) == text.encode()

    return is_ours


def has_keys(*alternatives: Collection[str]) -> IsOurs:
    """Return a function that returns whether a file is a JSON object with the keys of one of
    `alternatives`.
    """

    def is_ours(path: Path) -> bool:
        try:
            content = read_json(path)
        except (OSError, ValueError):
            return False
        keys = content.keys() if isinstance(content, dict) else ()
        return any(set(names) <= set(keys) for names in alternatives)

    return is_ours


def _is_device(path: Path) -> bool:
    """Return whether `path` is not a file, or leads to a descriptor, as /dev/stdout does.

    The file to which a shell has directed a descriptor must stay the same file.
    """
    folder = os.path.realpath(path.parent)
    is_descriptor = folder == "/dev" or folder.startswith("/proc/")
    return is_descriptor or (path.exists() and not path.is_file())


@contextlib.contextmanager
def place_to_write(file: str | Path) -> Iterator[Path]:
    """Yield the path at which a `with` block writes what becomes the contents of `file`.

    A link stays, and the file to which it leads is replaced, if the block raises no error. A
    device, a file of a folder that cannot be written, and a file that is mounted are written in
    place.
    """
    path = Path(file)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if _is_device(path):
        yield path
    elif target.exists() and (is_mount(path) or not os.access(target.parent, os.W_OK)):
        yield target
    else:
        with replace_file(target) as temporary:
            yield temporary


@contextlib.contextmanager
def replacing(file: str | Path) -> Iterator[TextIO]:
    """Open a text file, which replaces `file` as `place_to_write` describes."""
    try:
        with (
            place_to_write(file) as temporary,
            open(temporary, "w", encoding="utf-8", newline="") as opened,
        ):
            yield opened
    except BrokenPipeError:  # of stdout
        raise
    except OSError as error:
        raise ValueError(
            f"{file}: cannot be written ({error.strerror}); "
            f"{fix_for_write(error)}, or give another file"
        ) from None


def write_output(file: str | Path, text: str) -> None:
    """Replace the contents of `file`, completely or not at all where `place_to_write` can."""
    with replacing(file) as opened:
        opened.write(text)
