"""Fixtures that change a checkpoint while it is read, and that write matching manifests."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

AT_OPEN: list[Callable[[str], None]] = []  # called with the path of each file that is opened


def watch(event: str, arguments: tuple[object, ...]) -> None:
    for act in AT_OPEN if event == "open" else ():
        act(str(arguments[0]))


sys.addaudithook(watch)


@pytest.fixture
def at_open() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """at_open(part, act): before this process opens a file with `part` in its path, `act` is
    called, once.
    """

    def register(part: str, act: Callable[[], None]) -> None:
        def once(path: str) -> None:
            if part in path:
                AT_OPEN.remove(once)
                act()

        AT_OPEN.append(once)

    yield register
    AT_OPEN.clear()


@pytest.fixture
def seal() -> Callable[..., None]:
    """seal(folder, **entries): write a manifest with these entries and a right sha256, as another
    program can.
    """

    def write(folder: Path, **entries: object) -> None:
        text = json.dumps(entries, sort_keys=True).encode()
        entries["sha256"] = hashlib.sha256(text).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(entries))

    return write


@pytest.fixture
def reseal(seal: Callable[..., None]) -> Callable[..., None]:
    """reseal(path, **entry): change the entry of a checkpoint's file in the manifest."""

    def write(path: Path, **entry: object) -> None:
        files = json.loads((path.parent / "manifest.json").read_text())["files"]
        files[path.name] |= entry
        seal(path.parent, format=2, files=files)

    return write
