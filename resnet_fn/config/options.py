"""This module defines `RunOptions`, which decide how a run is computed and recorded."""

import dataclasses
from functools import partial

from resnet_fn.config.fields import setting
from resnet_fn.config.settings import Settings

_run = partial(setting, "the run: where it is stored and resumed")
_compute = partial(setting, "how updates are computed")
_each = partial(_compute, per_worker=True)
_record = partial(setting, "what the run records", per_worker=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """These settings decide how a run is computed and recorded. Raises ValueError if a setting is invalid."""

    out_dir: str = _run("", "run folder; empty: runs/<recipe>-<time>", "path", aliases="output")
    resume: str = _run("auto", "auto: resume the run in the run folder; never; or a run or checkpoint", "path")
    data_dir: str = _run("", "folder of the data set (all but digits and synthetic)", "path", aliases="data-path")
    train_list: str = _run("", "training images below data_dir: PATH CLASS a line, or .csv with path, label", "path")
    val_list: str = _run("", "the same for validation images", "path")
    check_files: str = _run("auto", "decode all image files first; auto: up to 20,000 of them", choices="auto|yes|no")
    allow_other_data: bool = _run(False, "resume with another training set than the checkpoint's")
    data_threads: int = _each(0, "threads that decode images, per worker; 0: an even share", "threads", at_least=0)
    feed: str = _compute("float32", "images on the device: normalised, or bytes (files)", choices="float32|uint8")
    accumulate: int = _compute(1, "parts of a worker's batch, each with its own BatchNorm", "micro-batches", at_least=1)
    mode: str = _compute("graph", "compile each update, or nothing", choices="graph|pynative")
    device: str = _compute("CPU", "where to compute", choices="CPU|Ascend")
    fast_math: bool = _compute(False, "Ascend: HF32, and results that differ in bits")
    threads: int = _each(0, "CPU kernel threads per worker, at least 2; 0: an even share", "threads", at_least=0)
    eval_batch_size: int = _compute(256, "samples of one evaluation batch, per worker", "samples", at_least=1)
    log_every: int = _record(1, "how often to log", "updates", at_least=1)
    norms_every: int = _record(100, "how often to log norms by group of layers; 0: never", "updates", at_least=0)
    checkpoint_every: int = _record(0, "how often to save; 0: at each epoch's end", "updates", at_least=0)
    keep_last: int = _record(3, "newest checkpoints to keep, beside the best", "checkpoints", at_least=2)
    keep_every: int = _record(0, "also keep checkpoints at multiples of this; 0: none", "updates", at_least=0)
    max_skips: int = _run(20, "overflows in a row after which to stop (fp16)", "updates", at_least=1)
    progress: bool = _record(True, "show a progress bar")
