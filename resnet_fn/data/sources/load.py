"""A data set by its recipe."""

from pathlib import Path

from resnet_fn.config.hints import near_path
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet, load_digits
from resnet_fn.data.sources.cifar import load_cifar
from resnet_fn.data.sources.folders import load_folder
from resnet_fn.data.sources.records import load_records
from resnet_fn.data.sources.synthetic import make_synthetic
from resnet_fn.runtime.process import cpu_count

_NEED_NO_FOLDER = ("digits", "synthetic")


def load_dataset(recipe: Recipe, data_dir: str = "", threads: int = 0, workers: int = 1) -> DataSet:
    """Load or list a recipe's data set.

    Args:
        recipe: names the set and evaluation's preprocessing.
        data_dir: where the set lies; "" for those that need none.
        threads, workers: see `data_threads`.

    Raises:
        ValueError: no or a wrong folder, explained; more threads than this machine has CPUs.
    """
    if recipe.dataset in _NEED_NO_FOLDER:
        if data_dir:
            raise ValueError(f"data_dir: {data_dir!r} is given, but the set {recipe.dataset} needs none; leave it out")
        if recipe.dataset == "digits":
            return load_digits()
        return make_synthetic(recipe.synthetic_samples, recipe.synthetic_classes, recipe.image_size)
    if not data_dir:
        raise ValueError(f"data_dir: the set {recipe.dataset} needs one; give --data-dir FOLDER")
    suggest_folder(data_dir)
    if recipe.dataset in ("cifar10", "cifar100"):
        return load_cifar(recipe.dataset, data_dir)
    load = load_folder if recipe.dataset == "imagefolder" else load_records
    dataset = load(data_dir, recipe.evaluation_resize, data_threads(threads, workers))
    return dataset


def suggest_folder(data_dir: str) -> None:
    """Refuse a folder that does not exist where one of nearly that name does; each set says what it looks for.

    Raises:
        ValueError: names the nearest folder.
    """
    near = "" if Path(data_dir).exists() else near_path(data_dir, "")
    if near:
        raise ValueError(f"data_dir: {data_dir!r} does not exist; {near}")


def data_threads(threads: int, workers: int = 1) -> int:
    """Threads that decode images: as asked for, by default this machine's CPUs shared among its workers.

    Raises:
        ValueError: more than there are CPUs, which MindSpore refuses with less of an explanation.
    """
    most = cpu_count()
    if threads > most:
        raise ValueError(f"data_threads: {threads} is more than this machine's {most} CPUs; give at most {most}")
    return threads or max(1, most // workers)
