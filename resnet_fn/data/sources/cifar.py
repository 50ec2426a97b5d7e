"""This module reads CIFAR-10 and CIFAR-100 binary or python version
(https://www.cs.toronto.edu/~kriz/cifar.html).
"""

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.reading import read_regular, reading
from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.sources.files import color_spec, show_contents

# MindSpore's own readers are not used, because they accept only files of exactly 10,000 or 50,000
# records.
_PIXELS = 3 * 32 * 32
_CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


class _Layout(NamedTuple):
    """Describes the files of a CIFAR archive."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str  # file of the class names, or "" for _CIFAR10_CLASSES
    label_bytes: int  # number of bytes before an image, of which the last is the class
    binary: bool


_TEN = tuple(f"data_batch_{number}" for number in range(1, 6))
_LAYOUTS = {
    "cifar10": (
        _Layout(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _TEN),
            "test_batch.bin",
            "",
            1,
            True,
        ),
        _Layout("cifar-10-batches-py", _TEN, "test_batch", "", 1, False),
    ),
    "cifar100": (
        _Layout("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", 2, True),
        _Layout("cifar-100-python", ("train",), "test", "meta", 2, False),
    ),
}
# These are the mean and standard deviation of each channel over the training pixels / 255.
_MOMENTS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
_FIX = "extract the archive again"
_LARGEST = 1 << 30  # bytes of a file; those of the archives have at most 153 MB


def load_cifar(name: str, data_dir: str) -> DataSet:
    """Read "cifar10" or "cifar100" (100 fine classes) from the extracted archive's folder, or from
    its parent.
    """
    folder, layout = _find(name, data_dir)
    parts = [_read(folder / file, layout) for file in layout.train]
    train = Split(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
    classes = _class_names(folder, layout) if layout.names else _CIFAR10_CLASSES
    spec = color_spec(name, classes, *_MOMENTS[name])
    return DataSet(train, _read(folder / layout.test, layout), spec)


def _find(name: str, data_dir: str) -> tuple[Path, _Layout]:
    root = Path(data_dir)
    archive = f"{name.replace('cifar', 'cifar-')}-binary.tar.gz"
    fix = (
        f"get {archive} from https://www.cs.toronto.edu/~kriz/cifar.html and extract it into "
        "--data-dir"
    )
    if not root.is_dir():
        raise ValueError(f"data_dir: {data_dir!r} is not a folder; {fix}")
    lacking = []  # number of missing files and the files, in each folder that has some
    for layout in _LAYOUTS[name]:
        wanted = list(filter(None, (*layout.train, layout.test, layout.names)))
        for folder in (root, root / layout.folder):
            missing = [file for file in wanted if not (folder / file).is_file()]
            if not missing:
                return folder, layout
            if len(missing) < len(wanted):
                lacking.append((len(missing), f"{folder} lacks {', '.join(missing)}"))
    if lacking:
        raise ValueError(f"data_dir: {min(lacking)[1]}; {fix}")
    expected = " or ".join(layout.train[0] for layout in _LAYOUTS[name])
    raise ValueError(
        f"data_dir: {root} must contain {expected}, but it contains {show_contents(root)}; {fix}"
    )


def _read(path: Path, layout: _Layout) -> Split:
    if layout.binary:
        data = np.frombuffer(_bytes_of(path), np.uint8)
        record = layout.label_bytes + _PIXELS
        if len(data) == 0 or len(data) % record:
            raise ValueError(
                f"{path}: has {len(data)} bytes, not a multiple of {record}; extract the archive "
                "again"
            )
        rows = data.reshape(-1, record)
        pixels = rows[:, layout.label_bytes :]
        labels = rows[:, layout.label_bytes - 1]
    else:
        content = _unpickle(path)
        key = b"labels" if layout.label_bytes == 1 else b"fine_labels"
        with reading(path, _FIX, "is not a CIFAR batch", (KeyError, TypeError, ValueError)):
            pixels = np.asarray(content[b"data"])
            labels = np.asarray(content[key])
            if (
                pixels.dtype != np.uint8
                or labels.ndim != 1
                or pixels.shape != (len(labels), _PIXELS)
            ):
                raise ValueError(
                    f"the data are {pixels.dtype} {pixels.shape}, and labels have shape "
                    f"{labels.shape}"
                )
    # A row of `pixels` holds an image's red, then green, then blue plane.
    images = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return Split(images, labels.astype(np.int32))


def _class_names(folder: Path, layout: _Layout) -> tuple[str, ...]:
    path = folder / layout.names
    if layout.binary:
        return tuple(_bytes_of(path).decode("utf-8", "replace").split())
    errors = (KeyError, TypeError, AttributeError)
    with reading(path, _FIX, "has no fine_label_names", errors):
        return tuple(name.decode() for name in _unpickle(path)[b"fine_label_names"])


_ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
_ALLOWED |= {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}


class _Unpickler(pickle.Unpickler):
    """Refuses a pickle with classes that NumPy arrays do not need, because these classes could run
    any code.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that NumPy arrays need. Raises UnpicklingError for any other class."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"the file needs {module}.{name}, but CIFAR files need only NumPy arrays"
            )
        return super().find_class(module.replace("numpy._core", "numpy.core"), name)


def _unpickle(path: Path) -> Any:
    data = _bytes_of(path)
    with reading(path, _FIX, "is damaged or not a CIFAR file", (Exception,)):
        return _Unpickler(io.BytesIO(data), encoding="bytes").load()


def _bytes_of(path: Path) -> bytes:
    with reading(path, _FIX):
        return read_regular(path, _LARGEST)
