"""What defines an update: (recipe, update number) → (samples, learning rate, new state)."""

import dataclasses
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from resnet_fn.config.fields import Needs, Settings, changed, setting
from resnet_fn.config.gone import translated

DATASETS = ("digits", "cifar10", "cifar100", "imagefolder", "mindrecord", "synthetic")
POLICIES = ("", "trivialaugment", "randaugment", "autoaugment")
_data = partial(setting, "data")
_augment = partial(setting, "augmentation")
_mixing = partial(setting, "mixing of images")
_net = partial(setting, "net")
_weights = partial(setting, "weights to start from, and what is trained")
_precision = partial(setting, "precision")
_rate = partial(setting, "batch and learning rate")
_loss = partial(setting, "loss")
_optimizer = partial(setting, "optimizer")
_evaluation = partial(setting, "evaluation")
_IN_MEMORY = Needs(
    lambda r: not r.of_files, "is for sets in memory; give 0 (image files take crop_scale, flip and policy)"
)
_FILES = "is for sets of image files; leave it out"
_OF_FILES = Needs(lambda r: r.of_files, f"{_FILES} (sets in memory take crop_padding)")
_IN_COLOUR = Needs(
    lambda r: r.dataset != "digits", "needs colour images of 0..255, which the digits are not; leave it out"
)
_RESIZE = Needs(lambda r: r.of_files, "is for sets of image files; sets in memory are resized to --eval-size")
_CROP = Needs(
    lambda r: r.evaluation_resize >= r.evaluation_size,
    "is below the crop of {r.evaluation_size}; give {r.evaluation_size} or more",
)
_MIXES = Needs(lambda r: r.mixes, "needs --mixup or --cutmix")
_MIXED = Needs(lambda r: r.mix_off_epochs < r.epochs, "needs --mix-off-epochs below epochs ({r.epochs})")
_BOTH_MIXES = Needs(lambda r: r.mixup > 0 and r.cutmix > 0, "needs both --mixup and --cutmix")
_REPEATS = Needs(
    lambda r: r.batch_size % r.repeats == 0, "does not divide the batch size {r.batch_size}", other="batch_size"
)
_RANDAUGMENT = Needs(lambda r: r.policy == "randaugment", "needs --policy randaugment")
_SEVERAL = (
    Needs(lambda r: r.dataset == "imagefolder", "needs --dataset imagefolder, as in --recipe finetune", "dataset"),
    Needs(lambda r: r.loss != "cross_entropy", "needs --loss bce or focal", "loss", "bce"),
    Needs(lambda r: r.label_smoothing == 0, "needs --label-smoothing 0", "label_smoothing", 0.0),
    Needs(lambda r: r.monitor != "top1", "needs --monitor map, macro_f1 or loss", "monitor", "map"),
    Needs(lambda r: not r.class_weights, "goes without --class-weights", "class_weights", ""),
    Needs(lambda r: r.sampling == "shuffle", "needs --sampling shuffle", "sampling", "shuffle"),
)
_BATCHNORM = Needs(lambda r: r.norm == "batch", "needs --norm batch")
_SYNTHETIC = Needs(lambda r: r.dataset == "synthetic", "needs --dataset synthetic")
_FP16 = Needs(lambda r: r.precision == "fp16", "needs --precision fp16")
_START = Needs(lambda r: bool(r.weights), "needs weights; give --weights FILE")
_ONE_OF_BOTH = Needs(
    lambda r: not r.freeze, "cannot be combined with --freeze {r.freeze}; give one of them", other="freeze"
)
_HEAD = Needs(lambda r: r.trains_head, "needs a last layer that is trained; leave it out, or --freeze")
_EMA = Needs(lambda r: r.ema > 0, "needs --ema")
_EMA_BEGINS = Needs(lambda r: r.ema_start < r.epochs, "needs --ema-start below epochs ({r.epochs})")
_NESTEROV = (
    Needs(lambda r: r.optimizer == "sgd", "is SGD's, not {r.optimizer}'s; give --no-nesterov"),
    Needs(lambda r: r.momentum > 0, "needs momentum above 0; give --no-nesterov"),
)
_LARS = (
    Needs(lambda r: r.optimizer == "lars", "needs --optimizer lars"),
    Needs(lambda r: r.weight_decay > 0, "is for layers with weight decay; give --weight-decay above 0"),
)
_ADAM = Needs(lambda r: r.optimizer in ("adam", "adamw", "lamb"), "needs --optimizer adam, adamw or lamb")
_STEP = Needs(lambda r: r.schedule == "step", "needs --schedule step")
_MILESTONES = Needs(
    lambda r: r.schedule != "step" or bool(r.milestones),
    "needs --milestones, which go with --schedule step",
    other="milestones",
)
_WARMUP = Needs(lambda r: r.warmup_epochs <= r.epochs, "is above epochs ({r.epochs})", other="epochs")
_FLOOR = (
    Needs(lambda r: r.schedule in ("cosine", "linear"), "needs --schedule cosine or linear"),
    Needs(
        lambda r: r.min_learning_rate <= r.learning_rate,
        "is above learning_rate ({r.learning_rate})",
        other="learning_rate",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """What defines an update: equal recipes compute the same. ValueErrors name the field, the value and the fix."""

    dataset: str = _data("digits", "data set", choices=DATASETS)
    image_size: int = _data(16, "height and width that the network sees", "pixels", at_least=1, aliases=("img-size",))
    eval_size: int = _evaluation(0, "height and width in evaluation; 0: image_size", "pixels", at_least=0)
    eval_resize: int = _evaluation(
        0, "shorter side before the centre crop; 0: eval_size / 0.875", "pixels", at_least=0, needs=(_RESIZE, _CROP)
    )
    max_shift: int = _augment(0, "random shift of a training image, each way", "pixels", at_least=0, needs=_IN_MEMORY)
    max_rotation: float = _augment(
        0.0, "random rotation of a training image, each way", "degrees", within="0..180 degrees", needs=_IN_MEMORY
    )
    max_zoom: float = _augment(
        0.0, "random zoom of a training image, each way", "fraction of 1", within="[0, 1)", needs=_IN_MEMORY
    )
    crop_padding: int = _augment(
        0, "zero padding before a random crop of the old size (sets in memory)", "pixels", at_least=0, needs=_IN_MEMORY
    )
    crop_scale: float = _augment(
        0.08, "smallest area of a random resized crop (files)", "fraction of 1", within="(0, 1]", needs=_OF_FILES
    )
    flip: bool = _augment(False, "mirror half of the training images")
    policy: str = _augment("", "automatic augmentation; empty: none", choices=POLICIES, needs=_IN_COLOUR)
    policy_ops: int = _augment(2, "operations per image (randaugment)", "operations", at_least=1, needs=_RANDAUGMENT)
    policy_magnitude: int = _augment(9, "strength, 0..30 (randaugment)", within="0..30", needs=_RANDAUGMENT)
    policy_noise: float = _augment(
        0.0, "standard deviation of the strength between images (randaugment)", within="0..30", needs=_RANDAUGMENT
    )
    color_jitter: float = _augment(
        0.0, "random brightness, contrast and saturation, each way", "fraction of 1", within="[0, 1)", needs=_IN_COLOUR
    )
    erasing: float = _augment(0.0, "probability of erasing a random rectangle", "fraction of 1", within="[0, 1]")
    mixup: float = _mixing(0.0, "alpha of mixup's Beta distribution; 0: no mixup", at_least=0, needs=_MIXED)
    cutmix: float = _mixing(0.0, "alpha of CutMix's Beta distribution; 0: no CutMix", at_least=0, needs=_MIXED)
    mix_switch: float = _mixing(
        0.5, "probability of CutMix if mixup is on too", "fraction of 1", within="[0, 1]", needs=_BOTH_MIXES
    )
    mix_off_epochs: int = _mixing(0, "last epochs without mixing", "epochs", at_least=0, needs=(_MIXED, _MIXES))
    label_threshold: float = _mixing(
        0.0,
        "mixed labels above it count as 1, all others as 0; 0: keep them",
        "fraction",
        within="[0, 0.5)",
        needs=(_MIXES, Needs(lambda r: r.loss != "cross_entropy", "needs --loss bce or focal")),
    )
    repeats: int = _data(
        1, "times that an update sees each of its images, differently augmented", "times", at_least=1, needs=_REPEATS
    )
    sampling: str = _data(
        "shuffle", "an epoch has every sample once, or every class equally often", choices=("shuffle", "balanced")
    )
    validation_share: float = _data(
        0.0,
        "part of every class for validation, if the folder has no val; kept by the run",
        "fraction of 1",
        within="[0, 1)",
        example=0.2,
        needs=Needs(lambda r: r.dataset == "imagefolder", "is for --dataset imagefolder; leave it out"),
    )
    multi_label: bool = _data(
        False, "images of any number of classes, in --train-list and --val-list with ; between them", needs=_SEVERAL
    )
    on_bad_sample: str = _data(
        "error", "if a file cannot be decoded", choices=("error", "skip"), needs=Needs(lambda r: r.of_files, _FILES)
    )
    synthetic_samples: int = _data(
        2048,
        "training images of the synthetic set; an eighth as many for validation",
        "samples",
        at_least=8,
        needs=_SYNTHETIC,
    )
    synthetic_classes: int = _data(10, "classes of the synthetic set", "classes", at_least=1, needs=_SYNTHETIC)
    name: str = _net("custom", "name of the recipe; the run folder is called after it", per_worker=True)
    model: str = _net(
        "resnet20", "net: resnet18 … 152, resnet20 … 110, se_resnet50, genet50, resnext50_32x4d …", aliases=("arch",)
    )
    stem: str = _net("", "first layers; empty: the family's own", choices=("", "imagenet", "cifar", "d"))
    norm: str = _net("batch", "normalisation after each convolution", choices=("batch", "none"))
    sync_batchnorm: bool = _net(
        False, "BatchNorm over the samples of all workers together; not with --accumulate", needs=_BATCHNORM
    )
    initialisation: str = _net(
        "torchvision", "initial weights", choices=("torchvision", "torch", "he_uniform", "xavier_uniform")
    )
    zero_init_residual: bool = _net(False, "gamma 0 in each block's last BatchNorm", needs=_BATCHNORM)
    drop_path: float = _net(
        0.0, "stochastic depth: samples that skip the last block, linear from 0", "fraction of 1", within="[0, 1)"
    )
    dropout: float = _net(0.0, "share of the last layer's inputs that are dropped", "fraction of 1", within="[0, 1)")
    weights: str = _weights("", "initial weights: .pth, .safetensors, .ckpt or a run folder; not on resume", "path")
    which: str = _weights("last", "checkpoint of a run folder in --weights", choices=("last", "best"), needs=_START)
    reset_head: bool = _weights(False, "new last layer even where --weights are for the same classes", needs=_START)
    freeze: str = _weights(
        "", "parts that are not trained: stem, layer1, layer1.0.conv2, patterns like *.bn?, fc", "names with commas"
    )
    train_only: str = _weights("", "the only parts that are trained", "names with commas", needs=_ONE_OF_BOTH)
    batch_size: int = _rate(64, "samples of one update, of all workers", "samples", at_least=1, aliases=("bs", "batch"))
    epochs: int = _rate(20, "passes over the training set", "epochs", at_least=1)
    seed: int = _rate(
        0, "seed of initialisation, order, augmentation and validation split", at_least=0, within="0..4294967294"
    )
    schedule: str = _rate(
        "cosine",
        "learning-rate schedule",
        choices=("cosine", "linear", "step", "constant"),
        aliases=("sched",),
        needs=_MILESTONES,
    )
    learning_rate: float = _rate(0.2, "peak learning rate, for the whole batch", above=0, aliases=("lr",))
    head_learning_rate: float = _rate(
        0.0, "peak learning rate of the last layer; 0: as the others'", at_least=0, aliases=("head-lr",), needs=_HEAD
    )
    layer_decay: float = _rate(
        1.0,
        "layer-wise decay: each block's learning rate is this factor times the next block's (1: off)",
        within="(0, 1]",
        example=0.75,
    )
    min_learning_rate: float = _rate(0.0, "where cosine and linear end", at_least=0, aliases=("min-lr",), needs=_FLOOR)
    warmup_epochs: float = _rate(0.0, "linear warm-up", "epochs", at_least=0, needs=_WARMUP)
    milestones: tuple[float, ...] = _rate((), "drops of the step schedule", "epochs, with commas", above=0, needs=_STEP)
    milestone_factor: float = _rate(
        0.1, "what a milestone multiplies the learning rate by", within="(0, 1)", example=0.1, needs=_STEP
    )
    optimizer: str = _optimizer(
        "sgd", "the optimizer", choices=("sgd", "adam", "adamw", "lars", "lamb"), aliases=("opt",)
    )
    momentum: float = _optimizer(
        0.9, "momentum of SGD and LARS, beta1 of Adam, AdamW and LAMB", within="[0, 1)", example=0.9, aliases=("beta1",)
    )
    beta2: float = _optimizer(
        0.999, "how slowly the gradients' average square moves", within="[0, 1)", example=0.999, needs=_ADAM
    )
    epsilon: float = _optimizer(
        0.0,
        "added to the root of the gradients' average square; 0: the optimizer's own, 1e-8, LAMB's 1e-6",
        at_least=0,
        aliases=("eps",),
        needs=_ADAM,
    )
    nesterov: bool = _optimizer(True, "Nesterov's momentum", needs=_NESTEROV)
    weight_decay: float = _optimizer(5e-4, "weight decay; not on norm layers and biases", at_least=0, aliases=("wd",))
    decay_all: bool = _optimizer(False, "weight decay on norm layers and biases too")
    trust_coefficient: float = _optimizer(
        0.001, "largest step of a layer, relative to its weights (LARS)", above=0, needs=_LARS
    )
    ema: float = _optimizer(
        0.0, "decay of the moving average that is evaluated; 0: none", within="[0, 1)", example=0.999, needs=_EMA_BEGINS
    )
    ema_every: int = _optimizer(1, "how often the average moves", "updates", at_least=1, needs=_EMA)
    ema_start: float = _optimizer(
        0.0, "until when the average is a plain copy", "epochs", at_least=0, needs=(_EMA_BEGINS, _EMA)
    )
    clip_norm: float = _optimizer(1.0, "largest global gradient norm; 0: no clipping", at_least=0)
    loss: str = _loss("cross_entropy", "loss", choices=("cross_entropy", "bce", "focal"))
    label_smoothing: float = _loss(
        0.1, "probability spread over all classes", "fraction of 1", within="[0, 1)", aliases=("smoothing",)
    )
    smoothing_over: str = _loss(
        "all",
        "classes that the smoothing spreads over: PyTorch's all C, or the C - 1 others",
        choices=("all", "others"),
        needs=Needs(lambda r: r.label_smoothing > 0, "needs --label-smoothing"),
    )
    monitor: str = _evaluation(
        "top1",
        "which result makes a checkpoint the best; map: mean average precision",
        choices=("top1", "loss", "macro_f1", "map"),
        needs=Needs(lambda r: r.monitor != "map" or r.multi_label, "needs --multi-label"),
    )
    patience: int = _evaluation(
        0, "end the run after so many evaluations without improvement; 0: never", "evaluations", at_least=0
    )
    class_weights: str = _loss(
        "",
        "what each class weighs in the loss: balanced, or a file with lines CLASS WEIGHT; empty: all alike",
        per_worker=True,  # a path: what is in it is compared
    )
    precision: str = _precision("fp32", "fp16: float16 convolutions with loss scaling", choices=("fp32", "fp16"))
    loss_scale: float = _precision(65536.0, "first loss scale (fp16)", within="1..16777216", needs=_FP16)
    loss_scale_interval: int = _precision(
        2000, "finite updates before the loss scale doubles (fp16)", "updates", at_least=1, needs=_FP16
    )

    @property
    def of_files(self) -> bool:
        """Whether images are decoded from files on the fly."""
        return self.dataset in ("imagefolder", "mindrecord")

    @property
    def colours(self) -> bool:
        """Whether the colours of training images vary."""
        return bool(self.policy or self.color_jitter)

    @property
    def mixes(self) -> bool:
        """Whether labels are probabilities, float32 [n, classes], in every batch of the run."""
        return self.mixup > 0 or self.cutmix > 0

    @property
    def evaluation_size(self) -> int:
        """Height and width of an image in evaluation, pixels."""
        return self.eval_size or self.image_size

    @property
    def evaluation_resize(self) -> int:
        """Shorter side of an image file before evaluation's centre crop, pixels."""
        return self.eval_resize or round(self.evaluation_size / 0.875)

    @property
    def trains_head(self) -> bool:
        """Whether the last layer is trained: see `models.parts.select`."""

        def named(path: str, names: str) -> bool:
            return any(fnmatchcase(word, name.strip()) for name in names.split(",") for word in ("fc", path))

        paths = ("fc.weight", "fc.bias")
        return not all(named(p, self.freeze) or (self.train_only and not named(p, self.train_only)) for p in paths)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about it, a line each."""
        notes = []
        if late := ", ".join(f"{epoch:g}" for epoch in self.milestones if epoch >= self.epochs):
            end = f"the run ends after epoch {self.epochs}"
            notes.append(f"milestones {late}: {end}; the learning rate never drops there")
        if self.optimizer in ("lars", "lamb") and not self.weight_decay:
            plain = "SGD" if self.optimizer == "lars" else "Adam"
            adapts = f"{self.optimizer} adapts the rate of layers with weight decay only"
            notes.append(f"weight_decay 0: {adapts}; this is plain {plain}")
        if self.optimizer in ("adam", "adamw") and self.learning_rate >= 0.05:
            moves = "Adam moves every weight by about that much in an update; 0.001 is usual"
            notes.append(f"learning_rate {self.learning_rate:g}: {moves}")
        return tuple(f"warning: {note}" for note in notes)


def recipe_from_dict(fields: dict[str, Any]) -> Recipe:
    """Rebuild a recipe from JSON types, also of an earlier version; absent fields take their default."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    values = translated(Recipe, values)
    recipe = Recipe.__new__(Recipe, **values)
    vars(recipe).update({**vars(Recipe()), **values})
    return changed(recipe)
