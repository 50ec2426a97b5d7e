"""What FILE:FUNCTION may be, and how a sample is read with it."""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_line, kind_of
from resnet_fn.parity.inputs.pictures import Picture

FORMS = (
    "a function of a picture's path, a function of a folder that returns a data set, transforms "
    "(a Compose, or a list of MindSpore's), or a function without arguments that returns one of "
    "these"
)
_FOLDERS = ("folder", "root", "directory", "data_dir", "dataset_dir", "img_dir", "image_dir")
_PATHS = ("path", "file", "filename", "file_name")
_IMAGES = ("image", "img", "pixel_values", "data", "input", "inputs", "x")
_LABELS = ("label", "labels", "target", "class", "y")
_OPENED = "opened as torchvision's ImageFolder does: Image.open(path).convert('RGB')"
_BYTES = "given the file's bytes, as MindSpore's ImageFolderDataset does"
_BY_PATH = "a data set, whose samples are taken for the pictures in the order of their paths"
_COLLATING = ("default_collate", "default_convert")  # torch's own
MOST_ORDERED = 16  # so many samples show the order of a data set


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a side made of one picture."""

    image: np.ndarray
    label: np.ndarray | None = None
    left: Sequence[str] = ()  # what else the side made, by name: this is not compared


@dataclasses.dataclass(frozen=True)
class Side:
    """One side's way to read pictures."""

    place: str  # FILE:FUNCTION
    note: str  # how the pictures reach what FILE:FUNCTION is
    read: Callable[[Picture], Sample]
    # the names of its first samples in their order, for a data set; empty otherwise
    order: Sequence[str] = ()
    makes_samples: bool = True  # False for a data set, which has only its own pictures
    # whether its samples are only taken for the pictures in the order of their paths
    is_guessed: bool = False
    is_seeded: bool = False  # whether its order follows from the seed, as a DataLoader's
    is_read_once: bool = False  # its samples are of one pass, so that draws are not seen to vary


def side_of(
    value: Any, location: str, flag: str, folder: str, pictures: Sequence[Picture], seed: int
) -> Side:
    """Return how a side reads pictures.

    Args:
        value: what FILE:FUNCTION is.
        location: FILE:FUNCTION.
        flag: the flag that names it, for errors.
        folder: the folder of the pictures.
        pictures: the pictures that are compared.
        seed: the seed of a data loader's sampler.
    """
    if inspect.isclass(value) or _is_function(value):
        needed = _needed(value, location, flag)
        if needed and needed[0] not in _FOLDERS:
            return Side(location, "", lambda picture: sample_of(value(picture.path)))
        build: Callable[..., Any] = value
        made = build(folder) if needed else build()
        if _is_function(made):
            return Side(location, "", lambda picture: sample_of(made(picture.path)))
        value = made
    if hasattr(value, "dataset") and hasattr(value, "sampler"):  # torch's DataLoader
        return _of_loader(value, location, pictures, flag, seed)
    if hasattr(value, "create_tuple_iterator"):
        return _of_pipeline(value, location, pictures, flag)
    steps = _mindspore_steps(value)
    if steps:
        return Side(location, _BYTES, lambda picture: sample_of(_run(steps, picture)))
    is_indexed = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    is_module = hasattr(value, "forward") and callable(value)  # as nn.Sequential of transforms
    if (
        is_indexed
        and not is_module
        and not isinstance(value, list | tuple | dict | str | np.ndarray)
    ):
        return _of_dataset(value, location, pictures, flag)
    if callable(value):
        return Side(location, _OPENED, lambda picture: sample_of(value(_opened(picture))))
    raise ValueError(f"{flag}: {location} is {kind_of(value)}; give {FORMS}")


def _is_function(value: Any) -> bool:
    """Return whether a value is a function, or an object that is called with a path."""
    if inspect.isroutine(value) or isinstance(value, functools.partial):
        return True
    called = inspect.getattr_static(type(value), "__call__", None)
    names = [*inspect.signature(called).parameters] if inspect.isfunction(called) else []
    return len(names) > 1 and names[1] in _PATHS


def _needed(
    function: Any,
    location: str,
    flag: str,
) -> list[str]:
    """Return the names of the arguments that a function must be given: one or none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin
        return ["path"]
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in free
    ]
    if len(needed) > 1:
        names = ", ".join(needed)
        raise ValueError(f"{flag}: {location} needs {names}; give {FORMS}")
    return needed


def _opened(picture: Picture) -> Any:
    from PIL import Image

    with Image.open(picture.path) as image:
        return image.convert("RGB")


def _of_loader(
    loader: Any,
    location: str,
    pictures: Sequence[Picture],
    flag: str,
    seed: int,
) -> Side:
    """Return the side of a torch DataLoader: its data set, in its order."""
    if any(base.__name__ == "IterableDataset" for base in type(loader.dataset).__mro__):
        raise ValueError(
            f"{flag}: {location} loads an IterableDataset, whose samples are of no known picture; "
            "give its transforms instead"
        )
    side = _of_dataset(loader.dataset, location, pictures, flag)
    known = [side.order[index] for index in _drawn(loader, seed) if index < len(side.order)]
    function = getattr(loader, "collate_fn", None)  # a wrapper of a loader may have none
    collate = getattr(function, "__name__", type(function).__name__)
    note = side.note
    if function and collate not in _COLLATING:
        note += f"; its collate_fn, {collate}, is not compared"
    return dataclasses.replace(side, order=known, note=note, is_seeded=True)


def _drawn(loader: Any, seed: int) -> list[int]:
    """Return the first indices that a loader draws after `torch.manual_seed(seed)`."""
    import sys

    sys.modules["torch"].manual_seed(seed)
    batch_size = getattr(loader, "batch_size", 1)  # a wrapper of a loader may have none
    is_own = batch_size is None and loader.batch_sampler is not None
    drawn = itertools.chain.from_iterable(loader.batch_sampler) if is_own else loader.sampler
    return [int(index) for index in itertools.islice(drawn, MOST_ORDERED)]


def _of_dataset(
    dataset: Any,
    location: str,
    pictures: Sequence[Picture],
    flag: str,
) -> Side:
    """Return the side of a torch Dataset, whose `samples` or `imgs` name its files.

    Without these, the samples are the pictures in the order of their paths.
    """
    listed = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if listed:
        paths = [str(item[0] if isinstance(item, list | tuple) else item) for item in listed]
        note = "a data set, whose samples name their files"
    else:
        if len(dataset) != len(pictures):
            fix = "give a data set of these pictures, whose samples name their files in `samples`"
            raise _other_count(location, flag, f"{len(dataset)}", pictures, fix)
        paths = [picture.path for picture in pictures]
        note = _BY_PATH
    places = {path: index for index, path in enumerate(paths)}
    names = {picture.path: picture.name for picture in pictures}

    def read(picture: Picture) -> Sample:
        if picture.path not in places or places[picture.path] >= len(dataset):
            raise LookupError("the data set does not have this file")
        return sample_of(dataset[places[picture.path]])

    order = [names.get(path, path) for path in paths]
    return Side(location, note, read, order, makes_samples=False, is_guessed=not listed)


def _other_count(
    location: str,
    flag: str,
    count: str,
    pictures: Sequence[Picture],
    fix: str,
) -> ValueError:
    """Return the error that samples cannot be taken for the pictures in their order."""
    return ValueError(
        f"{flag}: {location} has {count} samples for {len(pictures)} pictures; {fix}, or raise "
        "--pictures"
    )


def _of_pipeline(
    dataset: Any,
    location: str,
    pictures: Sequence[Picture],
    flag: str,
) -> Side:
    """Return the side of a MindSpore data set, whose samples come in one pass."""
    rows = dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)
    columns = dataset.get_col_names()
    samples = [sample_of(row, columns) for row in itertools.islice(rows, len(pictures) + 1)]
    if len(samples) != len(pictures):
        count = f"{len(samples)}{' or more' * (len(samples) > len(pictures))}"
        fix = "give a data set without batch, repeat and filter"
        raise _other_count(location, flag, count, pictures, fix)
    by_path = {picture.path: sample for picture, sample in zip(pictures, samples, strict=True)}
    order = [picture.name for picture in pictures]

    def read(picture: Picture) -> Sample:
        return by_path[picture.path]

    return Side(
        location,
        _BY_PATH,
        read,
        order,
        makes_samples=False,
        is_guessed=True,
        is_read_once=True,
    )


def _mindspore_steps(value: Any) -> list[Any]:
    """Return the steps of MindSpore's transforms, a list or a Compose; empty for anything else."""
    if _is_mindspores(value) and type(value).__name__ == "Compose":
        value = value.transforms
    steps = list(value) if isinstance(value, list | tuple) else [value]
    return steps if steps and any(map(_is_mindspores, steps)) else []


def _is_mindspores(value: Any) -> bool:
    return any(base.__module__.startswith("mindspore.dataset") for base in type(value).__mro__)


def _run(steps: Sequence[Any], picture: Picture) -> Any:
    """Run MindSpore's transforms one after the other.

    The first gets the file's bytes if it decodes, and the decoded picture otherwise.
    """
    decodes = "Decode" in type(steps[0]).__name__
    value = np.fromfile(picture.path, np.uint8) if decodes else np.asarray(_opened(picture))
    for step in steps:
        value = step(value)
    return value


def sample_of(value: Any, columns: Sequence[str] = ()) -> Sample:
    """Return the array and the label in what a function returned, and the names of the rest.

    `columns` has the names of a tuple's parts; without them, a part is named by its place.
    """
    if isinstance(value, Mapping):
        of_image = next((name for name in _IMAGES if name in value), None)
        of_label = next((name for name in _LABELS if name in value), None)
        if of_image is None:
            names = ", ".join(map(str, value))
            raise ValueError(f"a dict with {names}; return the array as 'image'")
        label = None if of_label is None else value[of_label]
        left = [str(name) for name in value if name not in (of_image, of_label)]
        return Sample(as_array(value[of_image]), None if label is None else as_array(label), left)
    if isinstance(value, tuple | list) and value:
        label = as_array(value[1]) if len(value) > 1 else None
        numbered = [f"part {number} of a sample" for number in range(1, 1 + len(value))]
        return Sample(as_array(value[0]), label, (columns or numbered)[2:])
    return Sample(as_array(value))


def as_array(value: Any) -> np.ndarray:
    """Return a tensor of PyTorch or MindSpore, an array, a Pillow picture or a number as an array.

    Raises ValueError for anything else.
    """
    if hasattr(value, "asnumpy"):
        array = value.asnumpy()
    elif hasattr(value, "detach"):
        detached = value.detach().cpu()
        is_bfloat16 = str(detached.dtype).endswith("bfloat16")
        array = (detached.float() if is_bfloat16 else detached).numpy()
    else:
        array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"returned {kind_of(value)}; return an array of numbers")
    return array


def read_or_error(side: Side, picture: Picture) -> Sample | str:
    """Return a sample, or in one line why the side cannot read the picture."""
    try:
        sample = side.read(picture)
    except Exception as error:  # of the user's function
        return f"{type(error).__name__}: {_telling(error)}"
    image = sample.image
    if image.ndim == 0 or not image.size:
        return f"an array of shape {list(image.shape)} has no pixels"
    return sample


def _telling(error: Exception) -> str:
    """Return the most useful line of an error's text. MindSpore's begin with headings."""
    lines = [line.strip(" -") for line in str(error).splitlines()]
    heads = ("exception thrown from", "dataset pipeline error", "c++ call stack", "python call")
    content = [line for line in lines if line and not line.lower().startswith(heads)]
    return content[0] if content else first_line(error)
