"""Settings of how a run is computed and recorded; they never change samples or learning rate of an update."""

import dataclasses
from functools import partial

from resnet_fn.config.fields import YES_NO_AUTO, Needs, Settings, setting
from resnet_fn.config.recipe import Recipe

_run = partial(setting, "the run: where it is kept and goes on")
_compute = partial(setting, "how updates are computed, not which")
_each = partial(_compute, per_worker=True)
_record = partial(setting, "what the run records", per_worker=True)

_TRAIN_LIST = Needs(lambda o: bool(o.train_list), "needs --train-list FILE too")
_FILES = Needs(lambda o: o.dataset in ("imagefolder", "mindrecord"), "is for sets of image files; leave it out")
_FP16 = Needs(lambda o: o.precision == "fp16", "needs --precision fp16; in float32 the first overflow ends the run")
_ALONE = Needs(
    lambda o: o.accumulate == 1 or not o.sync_batchnorm,
    "micro-batches are normalised one by one, which --sync-batchnorm is to prevent; give --accumulate 1",
)
_CARD = Needs(lambda o: o.device == "Ascend", "needs --device Ascend; on a CPU kernels repeat to the bit as they are")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """How a run is computed and recorded. The constructor raises ValueErrors with the field, the value and the fix."""

    out_dir: str = _run("", "run folder; empty: runs/<recipe>-<time>", "path", aliases=("output",))
    resume: str = _run(
        "auto", "auto: go on if the run folder holds a run; never; or a run folder or checkpoint", "path"
    )
    data_dir: str = _run(
        "", "where the data set lies (cifar10, cifar100, imagefolder, mindrecord)", "path", aliases=("data-path",)
    )
    train_list: str = _run(
        "",
        "the training images of an imagefolder, below data_dir: PATH CLASS a line, or .csv with path, label",
        "path",
        needs=Needs(lambda o: bool(o.val_list), "needs --val-list FILE too"),
    )
    val_list: str = _run("", "the same of the validation images", "path", needs=_TRAIN_LIST)
    check_files: str = _run(
        "auto",
        "decode every image file before the first update; auto: up to 20,000 of training and validation together",
        choices=YES_NO_AUTO,
        needs=_FILES,
    )
    allow_other_data: bool = _run(False, "resume with another training set than the checkpoint's")
    data_threads: int = _each(
        0, "threads that decode images, per worker; 0: the CPUs shared evenly", "threads", at_least=0, needs=_FILES
    )
    feed: str = _compute(
        "float32",
        "how images go to the device: normalised before, or as bytes, a quarter as many, normalised there (image "
        "files without mixup, cutmix and erasing)",
        choices=("float32", "uint8"),
    )
    accumulate: int = _compute(
        1,
        "parts of a worker's share, to save memory; BatchNorm normalises each on its own",
        "micro-batches",
        at_least=1,
        needs=_ALONE,
    )
    mode: str = _compute("graph", "an update as one compiled function, or as none", choices=("graph", "pynative"))
    device: str = _compute("CPU", "where to compute", choices=("CPU", "Ascend"))
    fast_math: bool = _compute(False, "Ascend: HF32, and not the same bits each time", needs=_CARD)
    threads: int = _each(
        0, "CPU kernel threads per worker, at least 2; 0: this machine's CPUs shared evenly", "threads", at_least=0
    )
    eval_batch_size: int = _compute(256, "samples of one evaluation batch, per worker", "samples", at_least=1)
    log_every: int = _record(1, "how often to log", "updates", at_least=1)
    norms_every: int = _record(100, "how often to log norms by group of layers; 0: never", "updates", at_least=0)
    checkpoint_every: int = _record(0, "how often to save; 0: at each epoch's end", "updates", at_least=0)
    keep_last: int = _record(3, "newest checkpoints to keep, beside the best", "checkpoints", at_least=2)
    keep_every: int = _record(0, "keep those whose update is a multiple of this too; 0: none", "updates", at_least=0)
    max_skips: int = _run(20, "overflows in a row after which to stop (fp16)", "updates", at_least=1, needs=_FP16)
    progress: bool = _record(True, "show a progress bar")


def check_feed(recipe: Recipe, dtype: str) -> None:
    """ValueError if `dtype` is "uint8" and the recipe needs images that are normalised on the host."""
    needs = "sets in memory are" if not recipe.of_files else "mixup, cutmix and erasing work on images that are"
    if dtype != "float32" and (not recipe.of_files or recipe.mixes or recipe.erasing):
        raise ValueError(f"feed: {dtype!r} gives images as they were decoded, and {needs} normalised; give float32")


def split_batch(batch_size: int, workers: int, accumulate: int) -> int:
    """Samples of one micro-batch: batch_size / (workers · accumulate).

    Raises:
        ValueError: the batch does not divide evenly; lists the nearest batch sizes that do.
    """
    parts = workers * accumulate
    if batch_size % parts == 0:
        return batch_size // parts
    below, above = batch_size // parts * parts, -(-batch_size // parts) * parts
    values = " or ".join(str(value) for value in (below, above) if value)
    raise ValueError(
        f"batch_size: {batch_size} does not divide into {workers} workers x {accumulate} micro-batches; "
        f"use {values}, or another --accumulate"
    )
