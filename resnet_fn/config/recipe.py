"""What defines an update (`Recipe`) and what only decides how it is computed (`RunOptions`).

Every field's metadata carries its meaning, unit and choices: `--help` and the flags are made from them.
"""

import dataclasses
import math
from typing import Any

from resnet_fn.config.data import DataFields
from resnet_fn.config.fields import field as _field
from resnet_fn.config.fields import require as _require
from resnet_fn.config.hints import closest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(DataFields):
    """What defines an update: (recipe, update number) → (samples, learning rate, new state).

    Two runs with equal recipes compute the same, on whatever they run and however often they are interrupted.

    Raises:
        ValueError: from the constructor, naming the field, the value and the fix.
    """

    name: str = _field("custom", "name of the recipe; the run folder is called after it")
    model: str = _field("resnet20", "network: resnet18 … 152, resnet20 … 110, se_resnet50, genet50, resnext50_32x4d …")
    stem: str = _field("", "first layers; empty: the family's own", choices=("", "imagenet", "cifar", "d"))
    norm: str = _field("batch", "normalisation after each convolution", choices=("batch", "none"))
    initialisation: str = _field(
        "torchvision", "initial weights", choices=("torchvision", "torch", "he_uniform", "xavier_uniform")
    )
    zero_init_residual: bool = _field(False, "gamma 0 in each block's last BatchNorm")
    weights: str = _field("", "weights to start from: .pth, .safetensors, .ckpt or a run folder; not on resume", "path")
    reset_head: bool = _field(False, "keep the net's own last layer, for other classes than --weights has")
    batch_size: int = _field(64, "samples of one update, over all workers", "samples")
    epochs: int = _field(20, "passes over the training set", "epochs")
    seed: int = _field(0, "seeds the initialisation, the order and the augmentation")
    schedule: str = _field("cosine", "learning-rate schedule", choices=("cosine", "linear", "step", "constant"))
    learning_rate: float = _field(0.2, "peak learning rate, for the whole batch")
    min_learning_rate: float = _field(0.0, "where cosine and linear end")
    warmup_epochs: float = _field(0.0, "linear warm-up", "epochs")
    milestones: tuple[float, ...] = _field((), "where the step schedule drops", "epochs, comma-separated")
    milestone_factor: float = _field(0.1, "what a milestone multiplies the learning rate by")
    optimizer: str = _field("sgd", "what turns gradients into an update", choices=("sgd", "lars", "lamb"))
    momentum: float = _field(0.9, "momentum of SGD and LARS, beta1 of LAMB")
    nesterov: bool = _field(True, "Nesterov's momentum")
    weight_decay: float = _field(5e-4, "weight decay; not on gamma, beta and bias")
    decay_all: bool = _field(False, "weight decay on gamma, beta and bias too")
    trust_coefficient: float = _field(0.001, "largest step of a layer, relative to its weights (LARS)")
    ema: float = _field(0.0, "decay of the weights' moving average, which is then evaluated; 0: none")
    ema_every: int = _field(1, "how often the average moves", "updates")
    ema_start: float = _field(0.0, "until when the average is a plain copy", "epochs")
    clip_norm: float = _field(1.0, "largest global gradient norm; 0: no clipping")
    loss: str = _field("cross_entropy", "loss", choices=("cross_entropy", "bce", "focal"))
    label_smoothing: float = _field(0.1, "probability spread over all classes", "fraction of 1")
    smoothing_over: str = _field(
        "all",
        "classes that the smoothing spreads over: PyTorch's all C, or the C - 1 others",
        choices=("all", "others"),
    )
    precision: str = _field("fp32", "fp16: float16 convolutions with loss scaling", choices=("fp32", "fp16"))
    loss_scale: float = _field(65536.0, "first loss scale (fp16)")
    loss_scale_interval: int = _field(2000, "finite updates before the loss scale doubles (fp16)", "updates")

    def __post_init__(self) -> None:
        check_choices(self)
        self.check_data()
        for field in ("batch_size", "epochs", "loss_scale_interval", "ema_every"):
            _require(getattr(self, field) >= 1, field, getattr(self, field), "is too small; give 1 or more")
        for field in ("ema_start", "seed", "weight_decay", "clip_norm", "warmup_epochs", "min_learning_rate"):
            _require(getattr(self, field) >= 0, field, getattr(self, field), "is negative; give 0 or more")
        _require(bool(self.weights) or not self.reset_head, "reset_head", True, "needs weights; give --weights FILE")
        _require(self.learning_rate > 0, "learning_rate", self.learning_rate, "must be above 0")
        _require(0 <= self.ema < 1, "ema", self.ema, "is not in [0, 1); give 0.999")
        _require(self.trust_coefficient > 0, "trust_coefficient", self.trust_coefficient, "must be above 0")
        _require(
            not self.nesterov or self.optimizer == "sgd",
            "nesterov",
            True,
            f"is SGD's, not {self.optimizer.upper()}'s; give --no-nesterov",
        )
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "is not in [0, 1); give 0.9")
        _require(not self.nesterov or self.momentum > 0, "nesterov", True, "needs momentum above 0; give --no-nesterov")
        _require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "is not in [0, 1)")
        _require(
            self.warmup_epochs <= self.epochs, "warmup_epochs", self.warmup_epochs, f"is above epochs ({self.epochs})"
        )
        _require(
            self.min_learning_rate <= self.learning_rate,
            "min_learning_rate",
            self.min_learning_rate,
            f"is above learning_rate ({self.learning_rate})",
        )
        _require(
            (self.schedule == "step") == bool(self.milestones),
            "milestones",
            self.milestones,
            "go with --schedule step, and it with them: give both or neither",
        )
        _require(1 <= self.loss_scale <= 2**24, "loss_scale", self.loss_scale, "is not in 1..16777216")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How an update is computed and recorded: nothing here changes what it computes, but for float rounding."""

    out_dir: str = _field("", "run folder; empty: runs/<recipe>-<time>", "path")
    resume: str = _field("auto", "auto: go on where the run folder stops; never; or a run folder or checkpoint", "path")
    data_dir: str = _field("", "where the data set lies (cifar10, cifar100, imagefolder, mindrecord)", "path")
    data_threads: int = _field(0, "threads that decode images, per worker; 0: the CPUs shared evenly", "threads")
    accumulate: int = _field(1, "micro-batches into which each worker splits its share", "micro-batches")
    device: str = _field("CPU", "where to compute", choices=("CPU", "Ascend"))
    threads: int = _field(0, "CPU kernel threads per worker; 0: this machine's CPUs shared evenly", "threads")
    eval_batch_size: int = _field(256, "samples of one evaluation batch, per worker", "samples")
    log_every: int = _field(1, "how often to log", "updates")
    norms_every: int = _field(100, "how often to log norms by group of layers; 0: never", "updates")
    checkpoint_every: int = _field(0, "how often to save; 0: at each epoch's end", "updates")
    keep_last: int = _field(3, "newest checkpoints to keep, beside the best", "checkpoints")
    keep_every: int = _field(0, "keep those whose update is a multiple of this too; 0: none", "updates")
    max_skips: int = _field(20, "overflows in a row after which to stop (fp16)", "updates")
    progress: bool = _field(True, "show a progress bar")

    def __post_init__(self) -> None:
        check_choices(self)
        for field in ("accumulate", "eval_batch_size", "log_every", "max_skips"):
            _require(getattr(self, field) >= 1, field, getattr(self, field), "is too small; give 1 or more")
        for field in ("threads", "data_threads", "norms_every", "checkpoint_every", "keep_every"):
            _require(getattr(self, field) >= 0, field, getattr(self, field), "is negative; give 0 or more")
        _require(self.keep_last >= 2, "keep_last", self.keep_last, "would lose the run if the newest were damaged; 2+")


def check_choices(config: Recipe | RunOptions) -> None:
    """Refuse wrong types, non-finite numbers and values that are not among a field's choices."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        wanted = type(field.default)
        if wanted is float and type(value) is int:
            object.__setattr__(config, field.name, float(value))
        elif type(value) is not wanted:
            raise ValueError(f"{field.name}: {value!r} is a {type(value).__name__}; give a {wanted.__name__}")
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise ValueError(f"{field.name}: {value!r} is not finite; give a number")
        choices = field.metadata["choices"]
        if choices and value not in choices:
            raise ValueError(f"{field.name}: {value!r} is unknown; {closest(value, [c for c in choices if c])}")


def split_batch(batch_size: int, workers: int, accumulate: int) -> int:
    """Samples of one micro-batch: batch_size / (workers · accumulate).

    Raises:
        ValueError: the batch does not divide; the message names the nearest batch sizes that would.
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


def to_dict(config: Recipe | RunOptions) -> dict[str, Any]:
    """The fields as JSON types."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars_of(config).items()}


def vars_of(config: Recipe | RunOptions) -> dict[str, Any]:
    """The fields by name."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def recipe_from_dict(fields: dict[str, Any]) -> Recipe:
    """Rebuild a recipe from JSON types; unknown fields are an error, absent ones take their default."""
    known = {field.name for field in dataclasses.fields(Recipe)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"recipe: unknown field {unknown[0]!r}; {closest(unknown[0], sorted(known))}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Recipe(**values)
