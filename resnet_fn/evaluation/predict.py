"""`predict` classifies image files with a trained net."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor

from resnet_fn.config.hints import near_path
from resnet_fn.data.sources.files import ENDINGS, describe_left_out, how_to_convert, list_images
from resnet_fn.evaluation.loaded_net import LoadedNet, load_run
from resnet_fn.evaluation.metrics import SAID_FROM
from resnet_fn.evaluation.scoring import BLOCK
from resnet_fn.evaluation.task import task_of
from resnet_fn.runtime.console import printable


def find_images(paths: Iterable[str | Path]) -> list[Path]:
    """Return the given image files and the images in the given folders. Print a line about names that are left out."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside, left_out = list_images(path)
            sys.stderr.writelines(f"{line}\n" for line in describe_left_out(path, left_out))
            if not inside:
                fix = how_to_convert(left_out) or "give image files or their folder"
                raise ValueError(f"{path}: contains no images ({', '.join(ENDINGS)}); {fix}")
            files += [path / name for name in inside]
        elif path.exists() or path.is_symlink():  # a link to nothing counts as a file that cannot be read
            files.append(path)
        else:
            raise ValueError(f"{path}: does not exist; {near_path(path, 'give an image file or a folder')}")
    return files


def predict(
    run: LoadedNet | str | Path, images: str | Path | Iterable[str | Path], top: int = 5, threshold: float = SAID_FROM
) -> list[dict[str, Any]]:
    """Classify image files.

    Args:
        run: a run folder (its last checkpoint), a checkpoint folder, or the result of `load_run`.
        images: an image file, a folder of images, or several of them.
        top: number of the likeliest classes to return.
        threshold: lowest probability of a returned class. Only multi-label nets use `threshold`, and they ignore `top`.

    Returns:
        A list with {"file", "top": [{"class", "index", "probability"}, …]} for each file, the likeliest class first.
        For a file that cannot be read, the dict is {"file", "error"}.
        The other images in a call of `predict` can change an image's probabilities only by rounding errors.

    Raises:
        ValueError: a path does not exist, or a folder contains no images.
    """
    files = find_images([images] if isinstance(images, str | Path) else images)
    trained = run if isinstance(run, LoadedNet) else load_run(run)
    spec, step = trained.input, trained.eval_step
    labels, task = Tensor(np.zeros(BLOCK, np.int32)), task_of(trained.recipe.multi_label)
    limit, least = (len(spec.classes), threshold) if trained.recipe.multi_label else (top, 0.0)
    results = []
    for start in range(0, len(files), BLOCK):
        part = files[start : start + BLOCK]
        batch = np.zeros((BLOCK, spec.channels, spec.image_size, spec.image_size), np.float32)
        errors = {}
        for place, path in enumerate(part):
            try:
                batch[place] = trained.preprocess(path)[0]
            except ValueError as error:
                errors[place] = {"file": str(path), "error": str(error)}
        logits = step(Tensor(batch), labels).logits
        assert logits is not None
        rows = task.top_classes(logits.numpy()[: len(part)], limit).reshape(len(part), 2, -1)
        for place, (path, row) in enumerate(zip(part, rows, strict=True)):
            likely = [
                {"class": spec.classes[int(index)], "index": int(index), "probability": float(probability)}
                for index, probability in row.T
                if probability >= least
            ]
            results.append(errors.get(place, {"file": str(path), "top": likely}))
    return results


def results_csv(results: Sequence[dict[str, Any]]) -> str:
    """Return the results of `predict` as CSV with the columns file, class, probability, class2, …, error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    most = max(len(result.get("top", ())) for result in results) or 1
    numbers = ["", *(str(place) for place in range(2, most + 1))][:most]
    writer.writerow(["file", *(f"{what}{number}" for number in numbers for what in ("class", "probability")), "error"])
    for result in results:
        likely = [cell for row in result.get("top", ()) for cell in (row["class"], f"{row['probability']:.6g}")]
        cells = [result["file"], *likely, *[""] * (2 * most - len(likely)), result.get("error", "")]
        writer.writerow(map(printable, cells))
    return text.getvalue()
