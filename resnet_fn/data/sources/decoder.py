"""`Decoder` lets threads decode the samples of a stream, batch by batch."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

# number and file's bytes of one sample after the other
Stream = Generator[tuple[int, bytes], None, None]
# (place in the batch, sample's number, file's bytes) → result
Decode = Callable[[int, int, bytes], Any]
Decoding = list[Future[Any]]  # the samples of a batch that threads decode


def results(decoding: Decoding) -> list[Any]:
    """Wait for all samples, and return their results in the order of the batch."""
    # wakes up once, not for each sample, because threads need the GIL
    wait(decoding, return_when=FIRST_EXCEPTION)
    return [future.result() for future in decoding]


class Decoder:
    """Decodes the samples of a stream in threads.

    A thread takes a sample from the stream when it can decode the sample at once. So each thread
    holds one file, and files do not pile up.
    """

    def __init__(self, samples: Stream, threads: int) -> None:
        self._samples = samples
        self._pool = ThreadPoolExecutor(threads, "decode")
        # in the order of the stream: where a result goes, its place in the batch, the sample
        self._places: deque[tuple[Future[Any], Decode, int, int]] = deque()
        self._stream = threading.Lock()
        self._finalizing = sys.is_finalizing  # modules are empty when Python ends

    def begin(self, indices: Sequence[int], decode: Decode) -> Decoding:
        """Let threads decode the next samples of the stream, whose numbers must be `indices`."""
        decoding: Decoding = [Future() for _ in indices]
        for row, index in enumerate(indices):
            self._places.append((decoding[row], decode, row, index))
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
                yield results(begun.popleft())
        for decoding in begun:
            yield results(decoding)

    def close(self) -> None:
        """End the threads and the stream."""
        if not self._finalizing():
            self._pool.shutdown(cancel_futures=True)
            self._samples.close()

    def _decode_next(self) -> None:
        with self._stream:
            future, decode, row, expected = self._places.popleft()
            try:
                index, data = next(self._samples, (None, b""))
                if index != expected:
                    got = f"the data reader returned sample {index} instead of {expected}"
                    raise RuntimeError(got)
            except BaseException as error:
                future.set_exception(error)
                return
        try:
            future.set_result(decode(row, index, data))
        except BaseException as error:
            future.set_exception(error)
