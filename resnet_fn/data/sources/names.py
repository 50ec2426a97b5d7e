"""`Names` is a sequence of file names that takes little memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from resnet_fn.config.wording import first_few


class Names(Sequence[str]):
    """Holds file names as one array of bytes.

    A name takes its bytes and 9 more. As a str, it would take its bytes and about 57 more.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._bytes = bytearray()  # the names in UTF-8, with a zero byte between two names
        self._ends = array("q")  # where each name ends
        for name in names:
            self.append(name)

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        """Return `names` as `Names`."""
        return names if isinstance(names, cls) else cls(names)

    @property
    def listing(self) -> bytes:
        """Return all names in UTF-8, with a zero byte between two names."""
        return bytes(self._bytes)

    def append(self, name: str) -> None:
        """Add a name at the end."""
        if self._ends:
            self._bytes += b"\0"
        self._bytes += name.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        start = self._ends[number - 1] + 1 if number else 0
        return self._bytes[start : self._ends[number]].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends:
            yield self._bytes[start:end].decode("utf-8", "surrogateescape")
            start = end + 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return self._ends == other._ends and self._bytes == other._bytes
        return isinstance(other, list | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # names can be added

    def __repr__(self) -> str:
        return f"Names({first_few(self, 3)})"
