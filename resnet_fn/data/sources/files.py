"""This module lists image files, reads them ahead in threads, and decodes them for evaluation."""

import dataclasses
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain, compress
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np

from resnet_fn.config.reading import read_regular
from resnet_fn.config.wording import first_few
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.image_file import MOST_BYTES, raise_unless_files_fault
from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.preprocess import eval_pixels, naming
from resnet_fn.data.sources.decoder import Decoder, Stream
from resnet_fn.data.sources.names import Names

_FIX = "fix the file and go on, or begin another run with --on-bad-sample skip"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
READERS = 16  # number of reading threads, which read 8,000 files a second at a latency of 2 ms
_AHEAD = 4  # number of items per thread that are computed ahead
MOST_WAITING = 32 << 20  # bytes of results that wait, if there is more than one
_JPEG = (".jfif", ".jp2", ".jpe", ".jpeg", ".jpg")  # and JPEG 2000
# Not every build of Pillow reads AVIF. Without it, such a file is a bad one, with a fix.
ENDINGS = (".avif", ".bmp", ".gif", *_JPEG, ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Endings of images that are not read, and the format to which ImageMagick converts them.
_DOCUMENTS = (".eps", ".ico", ".pdf", ".svg")
_CONVERTED_TO = {
    **dict.fromkeys((".arw", ".cr2", ".cr3", ".dng", ".nef"), "jpg"),  # of cameras
    **dict.fromkeys((".heic", ".heif", ".hif", ".jxl", ".psd", ".tga"), "jpg"),
    **dict.fromkeys((".dcm", *_DOCUMENTS), "png"),
}
# Names that storage devices, archives and operating systems add, in lower case. Some of the folders
# hold thumbnails.
_OF_SYSTEMS = (
    # Synology and QNAP
    "@eadir",
    "@tmp",
    "#recycle",
    "#snapshot",
    "@recycle",
    "@recently-snapshot",
    # Windows
    "$recycle.bin",
    "recycler",
    "system volume information",
    "thumbs.db",
    "desktop.ini",
    "__macosx",
    "lost+found",
    "__pycache__",
)

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_image(name: str) -> bool:
    """Return True if a file's name has the ending of an image, such as ".jpg" or ".PNG"."""
    return name.lower().endswith(ENDINGS)


def is_left_out(name: str) -> bool:
    """Return True if a name begins with a dot, or is one that systems add, such as "@eaDir"."""
    return name.startswith(".") or name.lower() in _OF_SYSTEMS


def list_folders(folder: str | Path) -> list[str]:
    """Return the sorted names of the folders in `folder`, or [] if it is no folder."""
    if not Path(folder).is_dir():  # raises other errors, such as EIO, unlike os.path.isdir
        return []
    # sorted by name alone: a folder can have a million files
    names = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    return sorted(name for name in names if not is_left_out(name))


def list_loose_images(folder: str | Path) -> list[str]:
    """Return the sorted names of the images directly in `folder`, or [] if it is no folder."""
    if not Path(folder).is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if is_image(name) and not is_left_out(name))


def list_left_out(folder: str | Path) -> list[str]:
    """Return the sorted names directly in `folder` that are left out, or [] if it is no folder.

    These are names for which `is_left_out` is true, and files without an image's ending, except
    documents.
    """
    if not Path(folder).is_dir():
        return []
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if is_left_out(entry.name)
        or not (is_image(entry.name) or entry.is_dir() or entry.name.lower().endswith(_DOCUMENTS))
    )


def show_contents(folder: str | Path) -> str:
    """Return the first names in `folder` as text, or "nothing"."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return ", ".join(sorted(names)[:5]) or "nothing"


def _walk(
    folder: str | Path,
    onerror: Callable[[OSError], object] | None,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (relative path, names of images, names that are left out) of each folder in `folder`.

    The first path is "", for `folder` itself. Links to folders around `folder` are not followed.
    `onerror` gets the error of a folder that cannot be read. None: such folders are skipped.
    """
    seen = {*map(os.path.realpath, Path(os.path.abspath(folder)).parents)}
    for inside, folders, files in os.walk(folder, onerror=onerror, followlinks=True):
        if (real := os.path.realpath(inside)) in seen:
            folders.clear()
            continue
        seen.add(real)
        images = sorted(name for name in files if is_image(name) and not is_left_out(name))
        unread = [name for name in folders if is_left_out(name)]
        folders[:] = sorted({*folders}.difference(unread))
        inner = "" if inside == os.fspath(folder) else os.path.relpath(inside, folder)
        yield inner, images, [*{*files}.difference(images), *unread]


def has_images(folder: str | Path) -> bool:
    """Return True if a folder holds an image at any depth, in a folder that can be read."""
    return any(images for _, images, _ in _walk(folder, onerror=None))


def list_images(folder: str | Path) -> tuple[list[str], list[str]]:
    """Return two lists of relative paths: images at any depth below a folder, and what is left out.

    Images have the order of torchvision's ImageFolder. Files without an image's ending and names
    for which `is_left_out` is True are left out. Links to folders are followed, and each folder is
    read once.
    """

    def stop(error: OSError) -> NoReturn:
        raise error

    walked = list(_walk(folder, onerror=stop))
    left_out = [os.path.join(inner, name) for inner, _, unread in walked for name in unread]
    listed = sorted((inner, images) for inner, images, _ in walked)
    paths = [f"{inner}/{name}" if inner else name for inner, images in listed for name in images]
    return paths, sorted(left_out)


def describe_left_out(folder: str | Path, left_out: Sequence[str]) -> list[str]:
    """Return lines about the names that `list_images` left out, or an empty list."""
    if not left_out:
        return []
    condition = "that have no image ending such as .jpg, begin with a dot, or are a system's"
    lines = [f"leaving out {len(left_out)} names in {folder} {condition}: {first_few(left_out, 2)}"]
    if hint := how_to_convert(left_out):
        lines.append(f"warning: {folder}: {hint}")
    return lines


def how_to_convert(names: Iterable[str]) -> str:
    """Return a text with the command that converts images which are not read, or "" for others."""
    endings = (os.path.splitext(name)[1].lower() for name in names)
    counts = Counter(ending for ending in endings if ending in _CONVERTED_TO)
    if not counts:
        return ""
    numbers = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    commands = [f"magick mogrify -format {_CONVERTED_TO[kind]} *{kind}" for kind in counts]
    return f"{numbers} not read; convert with ImageMagick: {first_few(commands)}"


def read_image(path: str | Path) -> bytes:
    """Read an image file. Raises OSError as `read_regular`, also for more than `MOST_BYTES`."""
    return read_regular(path, MOST_BYTES)


class EncodedSplit:
    """Decodes a split's image files for evaluation.

    Subclasses define `threads`, `stream` and `undecodable`.
    """

    threads: int  # number of decoding threads
    stream: Callable[[np.ndarray], Stream]
    undecodable: Callable[[int], BadSampleError]

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield images for each batch of sample numbers, resized and cropped at the centre as in
        torchvision.

        Images are normalised, float32 [n, C, H, W]. Threads decode one batch ahead.
        """

        def decode(row: int, index: int, data: bytes) -> np.ndarray:
            with naming(self.undecodable, index):
                return eval_pixels(data, spec.eval_resize, spec.image_size, spec.interpolation)

        rows = list(batches)
        order = np.fromiter(chain.from_iterable(rows), np.int64)
        with closing(Decoder(self.stream(order), self.threads)) as decoder:
            for images in decoder.decode_batches(rows, decode):
                yield prepare(np.stack(images), spec.image_size, spec)


@dataclasses.dataclass(frozen=True)
class FileSplit(EncodedSplit):
    """Holds the image files and labels of a split, and reads the files."""

    root: str  # folder to which relative paths in `names` refer
    names: Sequence[str]  # paths, absolute or relative to `root`; held as `Names`
    labels: np.ndarray  # int32 [N], or float32 [N, classes] if images have several classes
    # File sizes in bytes, int64 [N], when the files were checked. The array is empty before this
    # check.
    sizes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    # `contents.fingerprint` of each file, int64 [N, 2], when the files were read. The array is
    # empty before that.
    fingerprints: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 2), np.int64))
    threads: int = 1  # number of decoding threads
    # Group of each file, such as a patient. A split does not divide groups. None: no groups.
    groups: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", Names.of(self.names))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def listing(self) -> bytes:
        """Return all file names as bytes, which identify the data set."""
        return Names.of(self.names).listing

    @property
    def contents(self) -> bytes:
        """Return all file sizes as bytes. Sizes are compared instead of the files' contents."""
        return self.sizes.tobytes()

    def path(self, index: int) -> str:
        """Return the path of a sample's file."""
        return os.path.join(self.root, self.names[index])

    def read(self, index: int) -> bytes:
        """Return the bytes of a sample's file.

        Raises BadSampleError if the file is unreadable or its size changed, and OSError if the disk
        or a limit prevents reading.
        """
        try:
            data = read_image(self.path(index))
        except OSError as error:
            raise_unless_files_fault(error, self.path(index))
            raise BadSampleError(
                f"{self.path(index)}: cannot be read ({error.strerror}); {_FIX}"
            ) from None
        if len(self.sizes) and len(data) != self.sizes[index]:
            raise BadSampleError(
                f"{self.path(index)}: has changed since the command began; start the command again"
            )
        return data

    def undecodable(self, index: int) -> BadSampleError:
        """Return the error for a sample that cannot be decoded."""
        return BadSampleError(f"{self.path(index)}: cannot be decoded; {_FIX}")

    def stream(self, order: np.ndarray) -> Stream:
        """Yield (sample number, file's bytes) for each sample number in `order`.

        Threads read files ahead.
        """
        numbers = map(int, order)  # a list of ImageNet's sample numbers would take 46 MB
        return read_ahead(self.read, numbers, size=self._size)

    def _size(self, index: int) -> int:
        return int(self.sizes[index]) if len(self.sizes) else 0

    def keep(self, wanted: np.ndarray) -> "FileSplit":
        """Return a split of the samples for which `wanted`, bool [N], is true."""
        names = Names(compress(self.names, wanted))
        groups = self.groups and tuple(compress(self.groups, wanted))
        arrays = {name: getattr(self, name) for name in ("labels", "sizes", "fingerprints")}
        known = {name: array[wanted] for name, array in arrays.items() if len(array)}
        return dataclasses.replace(self, names=names, groups=groups, **known)


def read_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int = READERS,
    size: Callable[[Item], int] = lambda item: 0,
) -> Generator[tuple[Item, Result], None, None]:
    """Yield (item, function(item)) in order, while threads work on the items that come next.

    These are 4 items for each thread, or fewer if their results take `MOST_WAITING` bytes.
    `size` returns the bytes of an item's result.
    """
    # If Python exits during an iteration, this generator is closed after all threads ended and
    # `sys` was emptied.
    pool = ThreadPoolExecutor(threads)
    finalizing = sys.is_finalizing
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    source = iter(items)
    held = 0
    following = next(source, None)
    try:
        while following is not None or waiting:
            # Threads get several items at once, because waking them for each one takes long.
            refills = len(waiting) <= _AHEAD * threads // 2
            while refills and following is not None and len(waiting) < _AHEAD * threads:
                if waiting and held + size(following) > MOST_WAITING:
                    break
                held += size(following)
                waiting.append((following, pool.submit(function, following)))
                following = next(source, None)
            first, future = waiting.popleft()
            held -= size(first)
            yield first, future.result()
    finally:
        if not finalizing():
            pool.shutdown(cancel_futures=True)


def color_spec(
    name: str,
    classes: Sequence[str],
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> InputSpec:
    """Make an `InputSpec` for 8-bit colour images.

    `load_dataset` later sets the image sizes from the recipe.
    """
    return InputSpec(
        name=name,
        classes=tuple(classes),
        channels=3,
        image_size=0,
        full_scale=255.0,
        mean=tuple(mean),
        std=tuple(std),
    )
