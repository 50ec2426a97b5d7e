"""Image files as samples: read ahead by threads, and decoded for evaluation."""

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from typing import TypeVar

import numpy as np

from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.preprocess import eval_pixels, naming

_FIX = "fix it and go on, or begin another run with --on-bad-sample skip"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
READERS = 16  # threads: a disk with 2 ms of latency gives one thread 500 files a second, and 16 threads 8,000
_AHEAD = 4  # items for each thread that are begun before they are asked for: 64 files of 110 kB are 7 MB
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_image(name: str) -> bool:
    """Whether a file's ending says that it is an image. (Whether it is one, `scan` finds out.)"""
    return name.lower().endswith(ENDINGS)


@dataclasses.dataclass(frozen=True)
class FileSplit:
    """Image files and their labels.

    Attributes:
        root: the folder that `names` are relative to.
        names: paths, sorted by class, then name.
        labels: see `Samples`.
        sizes: int64 [N], bytes when the command began; empty: not asked for yet.
        threads: that decode.
    """

    root: str
    names: tuple[str, ...]
    labels: np.ndarray
    sizes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    threads: int = 1

    def __len__(self) -> int:
        return len(self.names)

    @property
    def listing(self) -> bytes:
        """What tells the set from others by name: the files' names."""
        return "\0".join(self.names).encode("utf-8", "surrogateescape")

    @property
    def contents(self) -> bytes:
        """What is known of the files' contents without reading them: their sizes."""
        return self.sizes.tobytes()

    def path(self, index: int) -> str:
        """Where a sample lies."""
        return os.path.join(self.root, self.names[index])

    def read(self, index: int) -> bytes:
        """A sample's bytes.

        Raises:
            BadSampleError: it cannot be read, or is no longer the file that it was when the command began.
        """
        try:
            with open(self.path(index), "rb") as file:
                data = file.read()
        except OSError as error:
            raise BadSampleError(f"{self.path(index)}: cannot be read ({error.strerror}); {_FIX}") from None
        if len(self.sizes) and len(data) != self.sizes[index]:
            raise BadSampleError(f"{self.path(index)}: has changed since the command began; start it again")
        return data

    def undecodable(self, index: int) -> BadSampleError:
        """What to raise of a sample that cannot be decoded."""
        return BadSampleError(f"{self.path(index)}: cannot be decoded; {_FIX}")

    def stream(self, order: np.ndarray) -> Generator[tuple[int, bytes], None, None]:
        """Each sample's number and bytes, in the order given, read ahead by threads that end with it.

        Raises:
            BadSampleError: see `read`, when the sample's turn comes.
        """
        return read_ahead(self.read, map(int, order))  # a list of an epoch's would be 46 MB for ImageNet

    def keep(self, wanted: np.ndarray) -> "FileSplit":
        """Only the samples where `wanted` (bool [N]) is true."""
        return dataclasses.replace(
            self,
            names=tuple(name for name, want in zip(self.names, wanted, strict=True) if want),
            labels=self.labels[wanted],
            sizes=self.sizes[wanted] if len(self.sizes) else self.sizes,
        )

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """See `Samples`: torchvision's evaluation preprocessing."""
        return decode_batches(self._read_batches(batches), spec, self.threads, self.undecodable)

    def _read_batches(self, batches: Iterable[np.ndarray]) -> Generator[list[tuple[int, bytes]], None, None]:
        rows = list(batches)
        with closing(read_ahead(self.read, chain.from_iterable(rows))) as samples:
            for row in rows:
                yield list(islice(samples, len(row)))


def decode_batches(
    batches: Generator[list[tuple[int, bytes]], None, None],
    spec: InputSpec,
    threads: int,
    undecodable: Callable[[int], BadSampleError],
) -> Iterator[np.ndarray]:
    """Decode batches of samples for evaluation, one batch ahead of the caller; no thread outlives the iteration.

    Args:
        batches: each sample's number and bytes.
        undecodable: what to raise of a sample that cannot be decoded.
    """

    def pixels(index: int, data: bytes) -> np.ndarray:
        with naming(undecodable, index):
            return eval_pixels(data, spec.eval_resize, spec.image_size)

    pool = ThreadPoolExecutor(threads)
    waiting: list[list[Future[np.ndarray]]] = []
    try:
        for batch in chain(batches, (None,)):
            if batch is not None:
                waiting.append([pool.submit(pixels, *sample) for sample in batch])
            if waiting and (batch is None or len(waiting) > 1):
                images = np.stack([future.result() for future in waiting.pop(0)])
                yield prepare(images, spec.image_size, spec)
    finally:
        pool.shutdown(cancel_futures=True)
        batches.close()


def read_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = READERS
) -> Generator[tuple[Item, Result], None, None]:
    """Each item with function(item), in the items' order; an error comes when its item's turn does.

    Only a window of 4 items for each thread is held, however many there are. Threads start with the first result and
    end with the iteration, or when it is closed.

    Args:
        function: what threads call; at most `threads` calls run at a time.
        items: taken one by one, by the caller's thread.
    """
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) == _AHEAD * threads:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def color_spec(
    name: str, classes: Sequence[str], mean: Sequence[float], std: Sequence[float], size: int = 224, resize: int = 256
) -> InputSpec:
    """What a net must be fed that is trained on colour images of 8 bits; `load_dataset` gives it the recipe's sizes."""
    return InputSpec(
        name=name,
        classes=tuple(classes),
        channels=3,
        image_size=size,
        eval_resize=resize,
        full_scale=255.0,
        mean=tuple(mean),
        std=tuple(std),
    )
