"""`Decoder` lets threads decode the samples of a stream, batch by batch."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

# (place in the batch, sample's number, file's bytes) → result
Decode = Callable[[int, int, bytes], Any]


class Decoding:
    """Holds a batch that threads decode."""

    def __init__(self, indices: Sequence[int], decode: Decode) -> None:
        self.indices = indices
        self.decode = decode
        self._results: list[Any] = [None] * len(indices)
        self._left = len(indices)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def put(self, row: int, result: Any) -> None:
        """Store a sample's result."""
        self._results[row] = result
        with self._lock:
            self._left -= 1
            is_whole = not self._left
        if is_whole:
            self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Let `results` raise an error. Only the first error counts."""
        with self._lock:
            self._error = self._error or error
        self._ended.set()

    def results(self) -> list[Any]:
        """Wait for all samples, and return their results in the order of the batch."""
        if self._left:
            self._ended.wait()  # wakes up once, not for each sample, because threads need the GIL
        if self._error:
            raise self._error
        return self._results


class Decoder:
    """Decodes the samples of a stream in threads.

    A thread takes a sample from the stream when it can decode the sample at once. So each thread
    holds one file, and files do not pile up.
    """

    def __init__(self, samples: Generator[tuple[int, bytes], None, None], threads: int) -> None:
        self._samples = samples
        self._pool = ThreadPoolExecutor(threads, "decode")
        self._places: deque[tuple[Decoding, int]] = deque()  # in the order of the stream
        self._stream = threading.Lock()
        self._finalizing = sys.is_finalizing  # modules are empty when Python ends

    def begin(self, indices: Sequence[int], decode: Decode) -> Decoding:
        """Let threads decode the next samples of the stream, whose numbers must be `indices`."""
        decoding = Decoding(indices, decode)
        for row in range(len(indices)):
            self._places.append((decoding, row))
            self._pool.submit(self._decode_next)
        return decoding

    def decode_batches(
        self,
        batches: Iterable[np.ndarray],
        decode: Decode,
    ) -> Iterator[list[Any]]:
        """Yield the results of each batch of sample numbers. Threads decode one batch ahead."""
        begun: deque[Decoding] = deque()
        for indices in batches:
            begun.append(self.begin(indices.tolist(), decode))
            if len(begun) > 1:
                yield begun.popleft().results()
        for decoding in begun:
            yield decoding.results()

    def close(self) -> None:
        """End the threads and the stream."""
        if not self._finalizing():
            self._pool.shutdown(cancel_futures=True)
            self._samples.close()

    def _decode_next(self) -> None:
        with self._stream:
            decoding, row = self._places.popleft()
            try:
                index, data = next(self._samples, (None, b""))
                if index != decoding.indices[row]:
                    expected = decoding.indices[row]
                    got = f"the data reader returned sample {index} instead of {expected}"
                    raise RuntimeError(got)
            except BaseException as error:
                decoding.fail(error)
                return
        try:
            result = decoding.decode(row, index, data)
        except BaseException as error:
            decoding.fail(error)
        else:
            decoding.put(row, result)
