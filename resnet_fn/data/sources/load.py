"""A data set by its recipe."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.hints import few, near_path, renamed
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet, Samples, check_images, check_labels
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.bundled import load_digits, make_synthetic
from resnet_fn.data.sources.cifar import load_cifar
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.folders import load_folder
from resnet_fn.data.sources.lists import load_lists
from resnet_fn.data.sources.records import INDEX, load_records
from resnet_fn.data.sources.scan import check_files, read_bad_files
from resnet_fn.runtime.cpus import cpu_count, cpu_share
from resnet_fn.runtime.workers import Workers

_NEED_NO_FOLDER = ("digits", "synthetic")
# What a folder of each of the other sets holds.
_SIGNS = {
    "mindrecord": (INDEX,),
    "cifar10": ("data_batch_1*", "cifar-10-*/data_batch_1*"),
    "cifar100": ("meta", "fine_label_names.txt", "cifar-100-*/meta", "cifar-100-*/fine_label_names.txt"),
    "imagefolder": ("train",),
}


def open_dataset(
    recipe: Recipe,
    data_dir: str = "",
    *,
    threads: int = 0,
    workers: Workers = Workers(),
    splits: Sequence[str] = ("train", "test"),
    check: str = "auto",
    run: Path | None = None,
    progress: bool = False,
    trained_on: InputSpec | None = None,
    source: object = "",
    lists: tuple[str, str] = ("", ""),
) -> DataSet:
    """A recipe's data set, its labels checked, and its image files as `check` says.

    Args:
        recipe: names the set, evaluation's preprocessing, and what to do about bad files.
        data_dir: where the set lies; "": where it lay in training, if that is known, or it needs none.
        threads: see `data_threads`.
        workers: they share the check of image files.
        splits: which to check; the others stay unchecked.
        check: see `check_files` of `RunOptions`.
        run: the run that goes on or is evaluated: it has the validation part, where one is split off, and of a run that
            goes on the list of bad files that are left out; None: both are made afresh.
        progress: show a bar on rank 0.
        trained_on: what a net was trained on, which this must be too; `source` is the checkpoint to name.
        lists: that name the training and the validation images of an imagefolder; "": as in training, else its folders.

    Raises:
        ValueError: no or a wrong folder, bad files, a label that is no class, or other classes than in training.
    """
    classes: tuple[str, ...] = ()
    if trained_on:
        data_dir, classes = data_dir or trained_on.data_dir, trained_on.classes
        lists = (lists[0] or trained_on.train_list, lists[1] or trained_on.val_list)
        if "train" not in splits and not Path(lists[0]).is_file():
            lists = ("", lists[1])  # what is not looked at need not be there
    skip = recipe.on_bad_sample == "skip"
    if skip and check == "no":
        raise ValueError(
            "check_files: 'no' finds no bad files, and on_bad_sample 'skip' needs them found; give --on-bad-sample "
            "error, or leave out --no-check-files"
        )
    dataset = load_dataset(recipe, data_dir, threads, run, lists, classes)
    check_images(dataset)
    left_out = read_bad_files(run) if skip and run and "train" in splits else ()
    dataset = check_files(dataset, recipe.on_bad_sample, check, workers, progress, splits, left_out)
    if trained_on and dataset.classes != trained_on.classes:
        raise ValueError(
            f"{source}: was trained on other classes than the data set {recipe.dataset} has now "
            f"({renamed(trained_on.classes, dataset.classes)}); give the checkpoint's own data set"
        )
    for name, split, what in (("train", dataset.train, "training set"), ("test", dataset.test, "test set")):
        if name in splits:
            check_labels(split, len(dataset.classes), what)
            there = set(np.unique(np.nonzero(split.labels)[1] if split.labels.ndim == 2 else split.labels).tolist())
            missing = [known for label, known in enumerate(dataset.classes) if label not in there]
            if not there:
                raise ValueError(f"{what}: no image has a class, so that nothing can be learned or scored; name some")
            if missing:
                note = f"the {what} has no images of {len(missing)} of the {len(dataset.classes)} classes: "
                dataset = dataclasses.replace(dataset, notes=(*dataset.notes, note + few(missing, 5)))
    if "train" in splits and recipe.name == "digits":
        dataset = dataclasses.replace(dataset, notes=(*dataset.notes, *_note_on_size(recipe, dataset.train)))
    return dataset


def _note_on_size(recipe: Recipe, split: Samples) -> list[str]:
    """What to say where the recipe of 16-pixel digits meets photographs: it is the default, perhaps nobody chose it."""
    if not isinstance(split, FileSplit):
        return []
    from PIL import Image

    with Image.open(split.path(0)) as image:
        width, height = image.size
    size = recipe.image_size
    if min(width, height) < 4 * size:
        return []
    return [
        f"warning: {split.path(0)} has {width} x {height} pixels, the net sees {size} x {size}, at a learning rate "
        f"of {recipe.learning_rate}: the recipe digits is for small images; give --recipe imagenet_resnet50_v1"
    ]


def load_dataset(
    recipe: Recipe,
    data_dir: str = "",
    threads: int = 0,
    run: Path | None = None,
    lists: tuple[str, str] = ("", ""),
    classes: Sequence[str] = (),
) -> DataSet:
    """Load or list a recipe's data set, its files unchecked; arguments and errors as `open_dataset`.

    `classes` are those of lists where they are known.
    """
    dataset = _load(recipe, data_dir, data_threads(threads), run, lists, classes)
    spec = dataclasses.replace(
        dataset.input,
        name=recipe.dataset,
        image_size=recipe.evaluation_size,
        eval_resize=recipe.evaluation_resize if recipe.of_files else 0,
        data_dir=str(Path(data_dir).resolve()) if data_dir else "",
        train_list=str(Path(lists[0]).resolve()) if lists[0] else "",
        val_list=str(Path(lists[1]).resolve()) if lists[1] else "",
    )
    return dataclasses.replace(dataset, input=spec)


def _load(
    recipe: Recipe, data_dir: str, threads: int, run: Path | None, lists: tuple[str, str], classes: Sequence[str]
) -> DataSet:
    name = recipe.dataset
    if lists[1] and name != "imagefolder":
        raise ValueError(f"val_list: is for --dataset imagefolder, and this is {name}; leave it out")
    if name in _NEED_NO_FOLDER:
        if data_dir:
            looks = [other for other, signs in _SIGNS.items() if any(any(Path(data_dir).glob(sign)) for sign in signs)]
            hint = f"; it looks like --dataset {looks[0]}" if looks else "; leave it out"
            raise ValueError(f"data_dir: {data_dir!r} is given, but the set {name} needs none{hint}")
        if name == "digits":
            return load_digits()
        return make_synthetic(recipe.synthetic_samples, recipe.synthetic_classes, recipe.image_size)
    if not data_dir:
        raise ValueError(f"data_dir: the set {name} needs one; give --data-dir FOLDER")
    suggest_folder(data_dir)
    if lists[1]:
        dataset = load_lists(data_dir, *lists, threads, classes, recipe.multi_label)
        note = f"{lists[1]} validates: nothing is split off the training images"
        return dataclasses.replace(dataset, notes=(*dataset.notes, *([note] if recipe.validation_share else [])))
    if recipe.multi_label:
        raise ValueError("multi_label: a folder's image has one class; give --train-list FILE --val-list FILE")
    if name in ("cifar10", "cifar100"):
        return load_cifar(name, data_dir)
    if name == "imagefolder":
        return load_folder(data_dir, threads, recipe.validation_share, recipe.seed, run)
    return load_records(data_dir, threads)


def suggest_folder(data_dir: str) -> None:
    """Refuse a file, and a folder that does not exist where one of nearly that name does; sets say what they look for.

    Raises:
        ValueError: names the nearest folder.
    """
    if Path(data_dir).is_file():
        raise ValueError(f"data_dir: {data_dir!r} is a file; give the folder that it unpacks to")
    near = "" if Path(data_dir).exists() else near_path(data_dir, "")
    if near:
        raise ValueError(f"data_dir: {data_dir!r} does not exist; {near}")


def data_threads(threads: int) -> int:
    """Threads that decode images: as asked for, by default this process's share of the CPUs.

    Raises:
        ValueError: more than there are CPUs.
    """
    most = cpu_count()
    if threads > most:
        raise ValueError(
            f"data_threads: {threads} is more than this machine's {most} CPU{'s' * (most > 1)}; give at most {most}"
        )
    return threads or cpu_share()
