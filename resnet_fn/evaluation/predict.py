"""`predict` classifies images with a trained net."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

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
from resnet_fn.runtime.console import printable

SMALL_BLOCK = 8  # images of the block that is computed, and compiled, if no more are left


def predict(
    run: LoadedNet | str | Path, images: Any, top: int = 5, threshold: float = SAID_FROM
) -> list[dict[str, Any]]:
    """Classify images.

    Args:
        run: a run folder (its last checkpoint), a checkpoint folder, or the result of `load_run`.
        images: an image file, a folder of images, a PIL image, an array uint8 [H, W, 3] (RGB), [H, W, 4] (RGBA; the
            opacity is ignored) or [H, W] (grey), or an iterable of these, for example uint8 [N, H, W, 3].
        top: number of the likeliest classes to return.
        threshold: lowest probability of a returned class. Only multi-label nets use `threshold`, and they ignore `top`.

    Returns:
        A list with {"file", "top": [{"class", "index", "probability"}, …]} for each image, the likeliest class first.
        For an image that cannot be read, the dict is {"file", "error"}. For the fourth image of `images`, if it has no
        path, "file" is "images[3]". The other images in a call of `predict` can change an image's probabilities only
        by rounding errors.

    Raises:
        ValueError: a path does not exist, a folder contains no images, or an array has another dtype or shape.
    """
    trained = run if isinstance(run, LoadedNet) else load_run(run)
    return list(predictions(trained, _each(images), top, threshold))


def predictions(
    trained: LoadedNet, images: Iterable[Any], top: int = 5, threshold: float = SAID_FROM
) -> Generator[dict[str, Any], None, None]:
    """Yield the results of `predict` as they are computed. `images` are paths of files, PIL images and arrays.

    The net computes 64 images at a time, or 8 if no more are left. Threads decode the next files meanwhile. `images`
    may be an iterator that never ends.
    """

    several = trained.recipe.multi_label
    limit, least = (len(trained.classes), threshold) if several else (top, 0.0)

    def prepare(item: tuple[str, np.ndarray | str | None]) -> np.ndarray | str:
        name, ready = item
        return _prepare(trained, name) if ready is None else ready

    with closing(read_ahead(prepare, _items(trained, images), data_threads(0))) as prepared:
        while block := list(islice(prepared, BLOCK)):
            rows = _likeliest(trained, [planes for _, planes in block], limit)
            for ((name, _), planes), row in zip(block, rows, strict=True):
                if isinstance(planes, str):
                    yield {"file": name, "error": planes}
                    continue
                likely = [
                    {
                        "class": trained.classes[int(index)],
                        "index": int(index),
                        "probability": float(probability),
                    }
                    for index, probability in row.T
                    if probability >= least
                ]
                yield {"file": name, "top": likely}


def _each(images: Any) -> Iterable[Any]:
    """Return an iterable of single images. The paths in it exist, unless they come from an iterator."""
    is_numbers = isinstance(images, np.ndarray) and images.dtype.kind not in "OSU"
    is_one = isinstance(images, str | Path | bytes) or is_pil_image(images) or not isinstance(images, Iterable)
    if is_one or (is_numbers and images.ndim < 4):
        images = [images]
    each = (one for image in images for one in (find_images([image]) if _is_path(image) else [image]))
    return each if isinstance(images, Iterator) else list(each)


def _is_path(image: Any) -> bool:
    return isinstance(image, str | Path)


def _items(trained: LoadedNet, images: Iterable[Any]) -> Iterator[tuple[str, np.ndarray | str | None]]:
    """Yield the name of each image, and what `_prepare` returns. It is None for a path, which a thread will read."""
    for number, image in enumerate(images):
        if _is_path(image):
            yield str(image), None
        else:  # at once, because the caller's iterator may write its next image into the same memory
            name = f"images[{number}]"
            yield name, _prepare(trained, as_pil(image, name))


def _prepare(trained: LoadedNet, image: Any) -> np.ndarray | str:
    """Return the net's input, float32 [channels, image_size, image_size], or why the image cannot be read."""
    try:
        planes: np.ndarray = trained.preprocess(image)[0]
        return planes
    except ValueError as error:
        return str(error)


def _likeliest(trained: LoadedNet, images: Sequence[np.ndarray | str], limit: int) -> np.ndarray:
    """Return the likeliest classes of at most 64 images and their probabilities, float32 [n, 2, k ≤ limit]."""
    spec, task = trained.input, task_of(trained.recipe.multi_label)
    if all(isinstance(planes, str) for planes in images):
        return np.zeros((len(images), 2, 0), np.float32)
    rows = SMALL_BLOCK if len(images) <= SMALL_BLOCK else BLOCK
    batch = np.zeros((rows, spec.channels, spec.image_size, spec.image_size), np.float32)
    for place, planes in enumerate(images):
        if not isinstance(planes, str):  # an image that cannot be read is black, so that the others keep their places
            batch[place] = planes
    logits = trained.eval_step(Tensor(batch), Tensor(np.zeros(rows, np.int32))).logits
    assert logits is not None
    return task.top_classes(logits.numpy()[: len(images)], limit).reshape(len(images), 2, -1)


def csv_header(classes: int) -> list[str]:
    """Return the cells of the first line of a CSV file that has at most `classes` classes for each image."""
    numbers = ["", *(str(place) for place in range(2, classes + 1))][:classes]
    pairs = [f"{what}{number}" for number in numbers for what in ("class", "probability")]
    return ["file", *pairs, "error"]


def csv_row(result: Mapping[str, Any], classes: int) -> list[str]:
    """Return the cells of a result of `predict`, as many as in `csv_header`."""
    cells = [cell for row in result.get("top", ()) for cell in (row["class"], f"{row['probability']:.6g}")]
    cells += [""] * (2 * classes - len(cells))
    return [printable(cell) for cell in (result["file"], *cells, result.get("error", ""))]
