"""This module defines `RunOptions`: how a run is computed and recorded.

The options may change when a run is resumed, for example `RunOptions(accumulate=2, keep_last=5)`.
They change neither the order of a data set's samples nor the learning rate, which the `Recipe` has.
"""

from functools import partial

from resnet_fn.config.declaration import PATH, YES_NO_AUTO, setting
from resnet_fn.config.settings import Settings

# The groups of the settings in --help. Workers may have different values of some.
_run = partial(setting, "run folder, resuming and data files")
_compute = partial(setting, "how updates are computed")
_compute_per_worker = partial(_compute, per_worker=True)
_record = partial(setting, "logs and checkpoints", per_worker=True)
# Options of a single start: neither a resume nor a run's recipe.toml takes them over.
OF_ONE_START = ("out_dir", "resume", "allow_other_data", "progress")


class RunOptions(Settings):
    """These settings decide how a run is computed, and may change when it is resumed.

    Raises ValueError if one is invalid.
    """

    title = "options"

    out_dir: str = _run("", "run folder; empty: runs/<recipe>-<time>", PATH, aliases=("output",))
    resume: str = _run(
        "auto",
        "run or checkpoint to resume; auto: run in --out-dir, if any; never: new run",
        PATH,
    )
    data_dir: str = _run(
        "", "folder of the data set; digits and synthetic need none", PATH, aliases=("data-path",)
    )
    train_list: str = _run(
        "", "list of training images in --data-dir: lines PATH CLASS, or CSV: path,label", PATH
    )
    val_list: str = _run(
        "", "list of validation images; empty: --validation-share splits --train-list", PATH
    )
    check_files: str = _run(
        "auto",
        "decode all images before training; auto: if at most 20,000",
        choices=YES_NO_AUTO,
    )
    allow_other_data: bool = _run(False, "resume even if the training set has changed")

    data_threads: int = _compute_per_worker(
        0, "threads that decode images, per worker; 0: worker's CPU share", "threads", at_least=0
    )
    feed: str = _compute(
        "float32",
        "type of images on the device; uint8 is for image files",
        choices=("float32", "uint8"),
    )
    accumulate: int = _compute(
        1, "gradient accumulation; BatchNorm runs per micro-batch", "micro-batches", at_least=1
    )
    max_skips: int = _compute(
        20, "stop the run after this many overflows in a row (fp16)", "updates", at_least=1
    )
    mode: str = _compute(
        "graph",
        "graph: compile the update; pynative: compile nothing",
        choices=("graph", "pynative"),
    )
    device: str = _compute("CPU", "device that computes", choices=("CPU", "Ascend"))
    fast_math: bool = _compute(False, "allow HF32 and kernels that are not deterministic (Ascend)")
    threads: int = _compute_per_worker(
        0,
        "CPU kernel threads per worker, at least 2; 0: worker's CPU share",
        "threads",
        at_least=0,
    )
    eval_batch_size: int = _compute(
        256,
        "samples read at a time in evaluation, per worker; at most 64 are computed",
        "samples",
        at_least=1,
    )

    log_every: int = _record(1, "interval between log entries", "updates", at_least=1)
    norms_every: int = _record(
        100, "interval between logs of layer groups' norms; 0: never", "updates", at_least=0
    )
    checkpoint_every: int = _record(
        0, "interval between checkpoints; 0: save after each epoch", "updates", at_least=0
    )
    keep_last: int = _record(
        3, "number of newest checkpoints to keep, besides the best", "checkpoints", at_least=2
    )
    keep_every: int = _record(
        0, "also keep checkpoints at multiples of this number; 0: none", "updates", at_least=0
    )
    progress: bool = _record(True, "show a progress bar")
