"""This module loads and checks the data set of a recipe."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from resnet_fn.config.options import RunOptions
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.recipe import Recipe, check_buildable
from resnet_fn.config.wording import first_few
from resnet_fn.data.agreement import check_data, identify
from resnet_fn.data.dataset import DataSet, Samples, check_labels
from resnet_fn.data.image_file import open_image
from resnet_fn.data.input_spec import InputSpec, renamed
from resnet_fn.data.sources.bundled import load_digits, make_synthetic
from resnet_fn.data.sources.cifar import load_cifar
from resnet_fn.data.sources.contents import CONTENTS
from resnet_fn.data.sources.files import FileSplit, list_folders
from resnet_fn.data.sources.folders import load_folder, load_test_folder
from resnet_fn.data.sources.kept import EarlierRun, describe_earlier
from resnet_fn.data.sources.lists import fits_folder, load_lists
from resnet_fn.data.sources.records import INDEX, RecordSplit, load_records
from resnet_fn.data.sources.scan import check_files, read_bad_files
from resnet_fn.data.sources.validation import SplitRule, split_off
from resnet_fn.runtime.cpus import cpu_count, cpu_share
from resnet_fn.runtime.workers import Workers


# Long: each kind of data set is opened from the same arguments, which are checked together.
def open_dataset(
    recipe: Recipe,
    data_dir: str = "",
    *,
    options: RunOptions = RunOptions(),
    workers: Workers = Workers(),
    splits: Sequence[str] = ("train", "test"),
    run: str | Path | None = None,
    trained_on: InputSpec | None = None,
    trained_files: Mapping[str, Any] | None = None,
    weights_of: EarlierRun | None = None,
    classes: Sequence[str] = (),
) -> DataSet:
    """Open the data set of a recipe, and check labels and image files.

    Args:
        recipe: settings such as the data set, the size of evaluation images, and what happens with
            bad files.
        data_dir: folder of the data set, by default `options.data_dir` or else
            `trained_on.data_dir`.
        options: settings for lists of images, decoding threads, file checks and the progress bar.
        workers: this worker's rank and the number of workers. Workers share the check of image
            files.
        splits: the splits to check, "train", "test" or both.
        run: folder of a run whose validation split and list of bad files are used, or None for a
            new run.
        trained_on: description of a trained net's input, or None. The data set must have the same
            classes, in the same order. The description's folder and lists of images are used if no
            others are given. If only "test" is checked, `data_dir` may also be a folder of other
            images to score.
        trained_files: result of `identify` for the images that trained the net. A folder with these
            images is a copy of the training's data set.
        weights_of: an earlier run whose weights the net starts with, or None. Its validation files
            validate again, or a line has the number of validation files that it was trained on.
        classes: the classes of a run that is resumed. They show which of several folders it read.

    Raises:
        ValueError: if the folder or a list is wrong, a file is bad, a label is invalid, or
            `trained_on` does not fit.
    """
    run = Path(run) if run else None
    same_folder = True
    if trained_on:
        data_dir = data_dir or options.data_dir or trained_on.data_dir
        same_folder = os.path.realpath(data_dir) == os.path.realpath(trained_on.data_dir)
        lists = {
            name: getattr(options, name) or getattr(trained_on, name)
            for name in ("train_list", "val_list")
        }
        stored = trained_on.val_list or trained_on.train_list
        list_file = options.train_list or options.val_list
        scores_folder = not ("train" in splits or list_file or recipe.multi_label)
        if scores_folder and stored and not same_folder and not fits_folder(stored, data_dir):
            lists = dict.fromkeys(lists, "")
        unneeded = "train" not in splits and lists["val_list"]
        if unneeded and not Path(lists["train_list"]).is_file():
            lists["train_list"] = ""  # evaluation needs no training list
        options = RunOptions.unchecked(vars(options) | lists)
    skip = recipe.on_bad_sample == "skip"
    check = options.check_files
    if skip and check == "no":
        raise ValueError(
            "check_files: 'no' cannot be used with on_bad_sample 'skip'; "
            "give --on-bad-sample error, or leave out --no-check-files"
        )
    rule = SplitRule(
        recipe.split_seed,
        recipe.group_by,
        run,
        same_folder=same_folder,
        classes=trained_on.classes if trained_on else classes,
    )
    if same_folder and not run and weights_of and weights_of.same_split:
        rule = dataclasses.replace(rule, run=weights_of.folder, exact=False, same_folder=False)
    dataset = load_dataset(recipe, data_dir, options, rule, splits, trained_on, trained_files)
    left_out = read_bad_files(run) if skip and run and "train" in splits else None
    dataset = check_files(
        dataset, recipe.on_bad_sample, check, workers, options.progress, splits, left_out
    )
    check_data(workers, dataset, splits)
    if trained_on and dataset.classes != trained_on.classes:
        changes = renamed(trained_on.classes, dataset.classes)
        raise ValueError(
            f"data_dir: the classes of {recipe.dataset} are not the trained net's ({changes}); "
            "give the checkpoint's own data set"
        )
    notes = list(dataset.notes)
    if trained_on and run:
        is_same = rule.same_folder and dataset.input.val_list == trained_on.val_list
        notes += describe_earlier(dataset, run, is_same)
    elif weights_of:
        notes += describe_earlier(dataset, weights_of.folder, is_same=False)
    total = len(dataset.classes)
    for name, split, title in (
        ("train", dataset.train, "training set"),
        ("test", dataset.test, "test set"),
    ):
        if name in splits:
            check_labels(split, total, title)
            labels = split.labels
            counts = (
                labels.sum(0)
                if labels.ndim == 2
                else np.bincount(labels.astype(int), minlength=total)
            )
            if not counts.any():
                raise ValueError(f"{title}: no image has a class; add classes to the list")
            missing = [dataset.classes[label] for label in np.flatnonzero(counts == 0)]
            if missing:
                notes.append(
                    f"the {title} has no images of {len(missing)} of the {total} classes: "
                    f"{first_few(missing, 5)}"
                )
    if "train" in splits and recipe.name == "digits":
        notes += _warn_of_large_images(dataset.train, recipe)
    return dataclasses.replace(dataset, notes=tuple(notes))


def _warn_of_large_images(train: Samples, recipe: Recipe) -> list[str]:
    """Return a list with a warning if the first image is much larger than the net's input."""
    if not isinstance(train, FileSplit | RecordSplit):
        return []
    with contextlib.closing(train.stream(np.zeros(1, np.int64))) as first:
        width, height = open_image(next(first)[1]).size
    size = recipe.image_size
    if min(width, height) < 4 * size:
        return []
    name = train.path(0) if isinstance(train, FileSplit) else train.names[0]
    return [
        f"warning: {name} has {width} x {height} pixels, but the recipe digits trains on "
        f"{size} x {size}, with learning rate {recipe.learning_rate}; "
        "give --recipe finetune with --weights FILE or --model NAME"
    ]


# Long: the loaders of all kinds of data sets stand side by side.
def load_dataset(
    recipe: Recipe,
    data_dir: str = "",
    options: RunOptions = RunOptions(),
    rule: SplitRule | None = None,
    splits: Sequence[str] = ("train", "test"),
    trained_on: InputSpec | None = None,
    trained_files: Mapping[str, Any] | None = None,
) -> DataSet:
    """Load a recipe's data set without checking image files.

    `rule` splits off validation files; None: the recipe's rule. For other arguments see
    `open_dataset`.
    """
    check_buildable(recipe)
    rule = rule or SplitRule(recipe.split_seed, recipe.group_by)
    classes = trained_on.classes if trained_on else ()
    scores_only = trained_on is not None and "train" not in splits
    name = recipe.dataset
    threads = data_threads(options.data_threads)
    data_dir = data_dir or options.data_dir
    train_list = options.train_list
    val_list = options.val_list
    share = recipe.validation_share
    if val_list and name != "imagefolder":
        raise ValueError(
            f"val_list: a list needs --dataset imagefolder, not {name}; leave out --val-list"
        )
    if name in ("digits", "synthetic"):
        if data_dir:
            raise ValueError(
                f"data_dir: {data_dir!r} is given, but {name} needs no folder; "
                "leave it out, or give --dataset cifar10, cifar100 or mindrecord, or for your "
                "images --recipe finetune --weights FILE"
            )
        synthetic = recipe.synthetic_samples, recipe.synthetic_classes, recipe.image_size
        dataset = load_digits() if name == "digits" else make_synthetic(*synthetic)
    elif not data_dir:
        raise ValueError(f"data_dir: the data set {name} needs a folder; give --data-dir FOLDER")
    elif Path(data_dir).is_file():
        raise ValueError(
            f"data_dir: {data_dir!r} is a file; extract the archive, and give the extracted folder"
        )
    elif not Path(data_dir).exists() and (nearest := near_path(data_dir, "")):
        raise ValueError(f"data_dir: {data_dir!r} does not exist; {nearest}")
    elif train_list or val_list:
        how = (classes, recipe.multi_label, recipe.group_by)
        dataset = load_lists(data_dir, train_list, val_list, *how)
        if not val_list:
            train, test, more = split_off(cast(FileSplit, dataset.train), share, rule)
            notes = (*dataset.notes, *more)
            dataset = DataSet(train, test, dataset.input, notes, is_split=True)
        elif share:
            note = f"{val_list} is the validation set, so nothing is split off the training images"
            dataset = dataclasses.replace(dataset, notes=(*dataset.notes, note))
    elif recipe.multi_label:
        raise ValueError(
            "multi_label: images in class folders have one class; give --train-list FILE "
            "--val-list FILE"
        )
    elif name == "imagefolder":
        if scores_only and not rule.same_folder:
            dataset = _load_other_images(data_dir, recipe, rule, trained_files or {})
        else:
            dataset = load_folder(data_dir, share, rule, trains="train" in splits)
    elif name == "mindrecord":
        is_folder = list_folders(data_dir) and not Path(data_dir, INDEX).exists()
        unpacked = scores_only and is_folder
        dataset = load_test_folder(data_dir, classes) if unpacked else load_records(data_dir)
    else:
        dataset = load_cifar(name, data_dir)
    spec = dataclasses.replace(
        dataset.input,
        image_size=recipe.evaluation_size,
        eval_resize=recipe.evaluation_resize if recipe.of_files else 0,
        interpolation=recipe.interpolation or dataset.input.interpolation,
        mean=_per_channel("mean", recipe.mean, dataset.input),
        std=_per_channel("std", recipe.std, dataset.input),
        data_dir=str(Path(data_dir).resolve()) if data_dir else "",
        train_list=str(Path(train_list).resolve()) if train_list else "",
        val_list=str(Path(val_list).resolve()) if val_list else "",
    )
    if recipe.of_files:
        halves: Sequence[Any] = (dataset.train, dataset.test)
        train, test = (dataclasses.replace(half, threads=threads) for half in halves)
        dataset = dataclasses.replace(dataset, train=train, test=test)
    if trained_on and scores_only and val_list and spec.val_list != trained_on.val_list:
        dataset = dataclasses.replace(dataset, validates=False)  # another list is scored
    return dataclasses.replace(dataset, input=spec)


def _per_channel(name: str, values: tuple[float, ...], spec: InputSpec) -> tuple[float, ...]:
    """Return the setting `name` of a recipe for each channel, or the data set's own values if it is
    empty.
    """
    of_data_set: tuple[float, ...] = getattr(spec, name)
    if len(values) in (0, len(of_data_set)):
        return values or of_data_set
    if len(values) == 1:
        return values * len(of_data_set)
    values_text = ",".join(f"{value:g}" for value in values)
    raise ValueError(
        f"{name}: {values_text} has {len(values)} values, but the images of {spec.name} have "
        f"{spec.channels} channel{'s' * (spec.channels > 1)}; "
        "give one value for each channel, or weights for such images"
    )


def _load_other_images(
    data_dir: str, recipe: Recipe, rule: SplitRule, trained_files: Mapping[str, Any]
) -> DataSet:
    """Load all images of another folder than the training's, or the validation split of a copy.

    `rule` has the classes of the trained net. For the other arguments see `open_dataset`.
    """
    notes: list[str] = []
    if rule.run and rule.is_fixed:
        with contextlib.suppress(ValueError):  # the run's validation images are not in this folder
            copy = load_folder(data_dir, recipe.validation_share, rule)
            has_all = copy.classes == tuple(rule.classes)
            if has_all and (rule.run / CONTENTS).exists():  # so `split_off` has compared images
                return copy
            spec = dataclasses.replace(copy.input, data_dir=data_dir)
            copy = dataclasses.replace(copy, input=spec)
            left_out = read_bad_files(rule.run) if recipe.on_bad_sample == "skip" else None
            # Only this worker's files are checked, because other workers may not find a copy.
            trained = check_files(copy, check="no", splits=("train",), left_out=left_out).train
            if identify(trained).items() <= trained_files.items():
                return copy
            notes.append(
                f"warning: {data_dir} has files with the names of {len(copy.test)} validation "
                "images of the run; all its images are scored, perhaps also training images"
            )
    dataset = load_test_folder(data_dir, rule.classes)
    return dataclasses.replace(dataset, notes=(*dataset.notes, *notes))


def data_threads(threads: int) -> int:
    """Return `threads`, or this worker's share of the CPUs if `threads` is 0."""
    most = cpu_count()
    if threads > most:
        raise ValueError(
            f"data_threads: {threads} is more than the {most} CPU{'s' * (most > 1)} of this "
            f"process; give at most {most}"
        )
    return threads or cpu_share()
