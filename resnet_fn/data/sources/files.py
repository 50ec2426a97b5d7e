"""Image files as samples, and their decoding for evaluation."""

import dataclasses
import io
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice

import numpy as np

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.normalise import prepare
from resnet_fn.data.preprocess import as_decodable, eval_pixels, naming, reads_alike
from resnet_fn.data.read_ahead import read_ahead

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def is_image(name: str) -> bool:
    """Whether a file's ending says that it is an image. (Whether it is one, the prescan finds out.)"""
    return name.lower().endswith(ENDINGS)


@dataclasses.dataclass(frozen=True)
class FileSplit:
    """Image files and their labels.

    Attributes:
        root: the folder that `names` are relative to.
        names: paths, sorted by class, then name.
        labels: see `Samples`.
        sizes: int64 [N], bytes when they were checked; empty: not checked yet.
        converted: bool [N], files that MindSpore's decoder does not read as PIL does, or turn as EXIF says; empty: not
            checked yet.
        threads: that decode.
    """

    root: str
    names: tuple[str, ...]
    labels: np.ndarray
    sizes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    converted: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
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
            ValueError: it cannot be read, or is no longer the file that was checked.
        """
        try:
            with open(self.path(index), "rb") as file:
                data = file.read()
        except OSError as error:
            raise ValueError(f"{self.path(index)}: cannot be read ({error.strerror}); fix it and resume") from None
        if len(self.sizes) and len(data) != self.sizes[index]:
            raise ValueError(f"{self.path(index)}: has changed since it was checked; start the command again")
        return data

    def read_decodable(self, index: int) -> bytes:
        """A sample's bytes as MindSpore's C++ decoder reads them right; of an unchecked file the header is looked at.

        Raises:
            ValueError: see `read`; or an unchecked file's header is none, or cut, of which the decoder would die.
        """
        data = self.read(index)
        if len(self.converted):
            return as_decodable(data) if self.converted[index] else data
        from PIL import Image

        try:
            image = Image.open(io.BytesIO(data))
            decodable = data if reads_alike(image) else as_decodable(data)
        except Exception:
            raise self.undecodable(index) from None
        if (
            image.format == "JPEG" and decodable is data and not image.tile
        ):  # PIL opens a JPEG that ends between two parts of its header
            raise self.undecodable(index)
        return decodable

    def undecodable(self, index: int) -> ValueError:
        """What to raise of a sample that no decoder takes."""
        return ValueError(f"{self.path(index)}: cannot be decoded; fix it and resume")

    def stream(self, order: np.ndarray) -> Generator[tuple[int, bytes], None, None]:
        """Each sample's number and bytes, in the order given, read ahead by threads that end with it.

        Raises:
            ValueError: see `read`, when the sample's turn comes.
        """
        return read_ahead(self.read, map(int, order))  # a list of an epoch's would be 46 MB for ImageNet

    def keep(self, wanted: np.ndarray) -> "FileSplit":
        """Only the samples where `wanted` (bool [N]) is true."""
        return dataclasses.replace(
            self,
            names=tuple(name for name, want in zip(self.names, wanted, strict=True) if want),
            labels=self.labels[wanted],
            sizes=self.sizes[wanted] if len(self.sizes) else self.sizes,
            converted=self.converted[wanted] if len(self.converted) else self.converted,
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
    undecodable: Callable[[int], ValueError],
) -> Iterator[np.ndarray]:
    """Decode batches of samples for evaluation, one batch ahead of the caller; no thread outlives the iteration.

    Args:
        batches: each sample's number and bytes.
        spec: what `eval_pixels` makes of them.
        threads: that decode.
        undecodable: what to raise of a sample that no decoder takes.
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
        assert not waiting
    finally:
        pool.shutdown(cancel_futures=True)
        batches.close()


def color_spec(name: str, classes: Sequence[str], mean: Sequence[float], std: Sequence[float]) -> InputSpec:
    """What a net must be fed that is trained on image files; `load_dataset` gives it the recipe's sizes."""
    return InputSpec(
        name=name,
        classes=tuple(classes),
        channels=3,
        image_size=224,
        eval_resize=256,
        full_scale=255.0,
        mean=tuple(mean),
        std=tuple(std),
    )
