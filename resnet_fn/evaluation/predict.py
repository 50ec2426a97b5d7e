"""`predict` classifies images with a trained net."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

from resnet_fn.data.sources.files import read_ahead
from resnet_fn.data.sources.load import data_threads
from resnet_fn.evaluation.image_names import find_images
from resnet_fn.evaluation.loaded_net import LoadedNet, load_run
from resnet_fn.evaluation.metrics import SAID_FROM
from resnet_fn.evaluation.picture import as_pil, is_pil_image
from resnet_fn.evaluation.scoring import BLOCK
from resnet_fn.evaluation.task import task_of

SMALL_BLOCK = 8  # number of images that the net computes together if no more are left

# The net's input, float32 [channels, image_size, image_size], or why the image cannot be read.
_Planes = np.ndarray | str


class _Item(NamedTuple):
    """An image of the caller."""

    name: str  # its path, or "images[3]" for the fourth image
    planes: _Planes | None  # None for a path, which a thread will read


def predict(
    run: LoadedNet | str | Path, images: Any, top: int = 5, threshold: float = SAID_FROM
) -> list[dict[str, Any]]:
    """Classify images.

    Args:
        run: a run folder (its last checkpoint), a checkpoint folder, or the result of `load_run`.
        images: an image file, a folder of images, a PIL image, an array uint8 [H, W, 3] (RGB), [H,
            W, 4] (RGBA; the opacity is ignored) or [H, W] (grey), or an iterable of these, for
            example uint8 [N, H, W, 3].
        top: number of the likeliest classes to return.
        threshold: lowest probability of a returned class. Only multi-label nets use `threshold`,
            and they ignore `top`.

    Returns:
        A list with {"file", "top": [{"class", "index", "probability"}, …]} for each image, the
        likeliest class first. For an image that cannot be read, the dict is {"file", "error"}. For
        the fourth image of `images`, if it has no path, "file" is "images[3]". The other images in
        a call of `predict` can change an image's probabilities only by rounding errors.

    Raises:
        ValueError: a path does not exist, a folder contains no images, or an array has another
            dtype or shape.
    """
    each = _each(images)  # before the net is loaded, because a path may not exist
    run = run if isinstance(run, LoadedNet) else load_run(run)
    return list(predictions(run, each, top, threshold))


def predictions(
    trained: LoadedNet, images: Iterable[Any], top: int = 5, threshold: float = SAID_FROM
) -> Generator[dict[str, Any], None, None]:
    """Yield the results of `predict` as they are computed.

    Threads decode files ahead. The net computes 64 images at a time, or 8 if no more are left.

    Args:
        trained: the net.
        images: paths of files, PIL images and arrays. An iterator may be endless.
        top, threshold: see `predict`.
    """

    def read(item: _Item) -> _Planes:
        return _prepare(trained, item.name) if item.planes is None else item.planes

    limit, least = top, 0.0
    if trained.recipe.multi_label:
        limit, least = len(trained.classes), threshold
    with closing(read_ahead(read, _items(trained, images), data_threads(0))) as prepared:
        while block := list(islice(prepared, BLOCK)):
            likeliest = _likeliest(trained, [planes for _, planes in block], limit)
            for (item, planes), top_classes in zip(block, likeliest.tolist(), strict=True):
                if isinstance(planes, str):
                    yield {"file": item.name, "error": planes}
                    continue
                rows = [
                    {
                        "class": trained.classes[int(index)],
                        "index": int(index),
                        "probability": probability,
                    }
                    for index, probability in zip(*top_classes, strict=True)
                    if probability >= least
                ]
                yield {"file": item.name, "top": rows}


def _each(images: Any) -> Iterable[Any]:
    """Return single images of what `predict` takes. Paths exist, unless an iterator yields them."""
    is_lazy = isinstance(images, Iterator)
    is_one = isinstance(images, str | Path | bytes) or is_pil_image(images)
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OSU":
        is_one = images.ndim < 4
    if is_one or not isinstance(images, Iterable):
        images = [images]
    each = (image for source in images for image in _inside(source, is_lazy))
    return each if is_lazy else list(each)


def _inside(image: Any, is_lazy: bool) -> list[Any]:
    """Return the images in a folder, or else [image]. A path that must exist is checked."""
    if _is_path(image) and (not is_lazy or Path(image).is_dir()):
        return find_images([image])
    return [image]


def _is_path(image: Any) -> bool:
    return isinstance(image, str | Path)


def _items(trained: LoadedNet, images: Iterable[Any]) -> Iterator[_Item]:
    for number, image in enumerate(images):
        if _is_path(image):
            yield _Item(str(image), None)
        else:
            # Now, because the caller's iterator may write its next image into the same memory.
            name = f"images[{number}]"
            yield _Item(name, _prepare(trained, as_pil(image, name)))


def _prepare(trained: LoadedNet, image: Any) -> _Planes:
    try:
        planes: np.ndarray = trained.preprocess(image)[0]
        return planes
    except ValueError as error:
        return str(error)


def _likeliest(trained: LoadedNet, images: Sequence[_Planes], limit: int) -> np.ndarray:
    """Return the likeliest classes of at most 64 images, float32 [n, 2, k ≤ limit].

    The first row of an image holds the numbers of the classes, the second their probabilities.
    """
    count = len(images)
    if all(isinstance(planes, str) for planes in images):  # none can be read: nothing is compiled
        return np.zeros((count, 2, 0), np.float32)
    spec = trained.input
    rows = SMALL_BLOCK if count <= SMALL_BLOCK else BLOCK
    batch = np.zeros((rows, spec.channels, spec.image_size, spec.image_size), np.float32)
    for index, planes in enumerate(images):
        if not isinstance(planes, str):  # an image that cannot be read keeps its place
            batch[index] = planes
    logits = trained.eval_step(Tensor(batch), Tensor(np.zeros(rows, np.int32))).logits
    assert logits is not None
    task = task_of(trained.recipe.multi_label)
    return task.top_classes(logits.numpy()[:count], limit).reshape(count, 2, -1)
