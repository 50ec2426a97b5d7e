"""This module defines `Recipe`, the settings of a run's updates and evaluation."""

from functools import partial

from resnet_fn.config.declaration import CUSTOM, PATH, PIXELS, setting
from resnet_fn.config.optimizers import OPTIMIZERS, explain_zero, optimizers_reading
from resnet_fn.config.rules import OF_FILES
from resnet_fn.config.settings import Settings

# Filters of Pillow that resize an image, named as in timm.
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "hamming", "box")
# Settings of a net's input, which weights bring with them: see weights/preparation.py.
PREPARATION = ("image_size", "eval_size", "eval_resize", "interpolation", "mean", "std")

CROP = 0.875  # a centre crop's side divided by the shorter side, as torchvision's 224 of 256
_FAR_ABOVE = 50  # times the usual learning rate: a warning

_data = partial(setting, "data")
_split = partial(setting, "validation split")
_augment = partial(setting, "augmentation")
_mixing = partial(setting, "mixup and CutMix")
_net = partial(setting, "net")
_weights = partial(setting, "initial weights and frozen parts")
_precision = partial(setting, "precision")
_training = partial(setting, "batch and learning rate")
_loss = partial(setting, "loss")
_optimizer = partial(setting, "optimizer")
_average = partial(setting, "moving average of the weights")
_evaluation = partial(setting, "evaluation")


class Recipe(Settings):
    """These settings determine a run's updates and evaluation.

    Raises ValueError if a setting is invalid.
    """

    title = "recipe"

    name: str = setting(
        "recipe",
        "custom",
        "name of the recipe, used to name the run folder",
        per_worker=True,
    )

    dataset: str = _data(
        "digits",
        "data set",
        choices=("digits", "cifar10", "cifar100", "imagefolder", "mindrecord", "synthetic", CUSTOM),
    )
    image_size: int = _data(
        16, "height and width of the net's input", PIXELS, at_least=1, aliases=("img-size",)
    )
    mean: tuple[float, ...] = _data(
        (),
        "each channel's mean, of pixels from 0 to 1; empty: the weights' or the data set's",
        within="[0, 1]",
    )
    std: tuple[float, ...] = _data(
        (),
        "each channel's standard deviation; empty: the weights' or the data set's",
        within="(0, 1]",
    )
    repeats: int = _data(1, "augmented copies of each image in a batch", at_least=1)
    sampling: str = _data(
        "shuffle", "balanced: draw all classes equally often", choices=("shuffle", "balanced")
    )
    multi_label: bool = _data(
        False,
        "images have any number of classes, separated by ; in the lists of images",
        compared=False,
    )
    on_bad_sample: str = _data(
        "error", "what to do if an image cannot be decoded", choices=("error", "skip")
    )
    synthetic_samples: int = _data(
        2048, "synthetic training images; 1/8 as many for validation", "samples", at_least=8
    )
    synthetic_classes: int = _data(
        10, "number of classes of the synthetic data set", "classes", at_least=1
    )

    validation_share: float = _split(
        0.0, "fraction of each class to hold out if no folder validates", within="[0, 1)"
    )
    split_seed: int = _split(0, "seed of the split by --validation-share", at_least=0)
    group_by: str = _split(
        "", "keep groups whole in the split: folder level, pattern or list column"
    )

    max_shift: int = _augment(0, "largest random shift of a training image", PIXELS, at_least=0)
    max_rotation: float = _augment(
        0.0, "largest random rotation of a training image", "degrees", within="[0, 180]"
    )
    max_zoom: float = _augment(
        0.0, "largest random zoom of a training image, in or out", "fraction", within="[0, 1)"
    )
    crop_padding: int = _augment(
        0, "zero padding before a random crop (data in memory)", PIXELS, at_least=0
    )
    crop_scale: float = _augment(
        0.08, "least area of random resized crops (image files)", "fraction", within="(0, 1]"
    )
    flip: bool = _augment(False, "random horizontal flip of training images")
    policy: str = _augment(
        "",
        "automatic augmentation; empty: none",
        choices=("trivialaugment", "randaugment", "autoaugment"),
    )
    policy_ops: int = _augment(
        2, "number of operations per image (randaugment)", "operations", at_least=1
    )
    policy_magnitude: int = _augment(
        9, "strength of operations, 0..30 (randaugment)", within="[0, 30]"
    )
    policy_noise: float = _augment(
        0.0, "standard deviation of the strength (randaugment)", within="[0, 30]"
    )
    color_jitter: float = _augment(
        0.0, "largest random change of brightness, contrast, saturation", within="[0, 1)"
    )
    erasing: float = _augment(
        0.0, "probability of erasing a random rectangle", "fraction", within="[0, 1]"
    )

    mixup: float = _mixing(0.0, "alpha of mixup's Beta distribution; 0: no mixup", at_least=0)
    cutmix: float = _mixing(0.0, "alpha of CutMix's Beta distribution; 0: no CutMix", at_least=0)
    mix_switch: float = _mixing(
        0.5, "probability of CutMix if CutMix and mixup are on", "fraction", within="[0, 1]"
    )
    mix_off_epochs: int = _mixing(
        0, "number of last epochs without mixup and CutMix", "epochs", at_least=0
    )
    label_threshold: float = _mixing(
        0.0, "set mixed labels over this value to 1, rest to 0; 0: off", within="[0, 0.5)"
    )

    model: str = _net(
        "resnet20",
        "net: resnet18 to 152, resnet20 to 110 (CIFAR), se_resnet50, …",
        aliases=("arch",),
    )
    stem: str = _net(
        "", "first layers; empty: the model's usual ones", choices=("imagenet", "cifar", "d")
    )
    norm: str = _net("batch", "normalisation after each convolution", choices=("batch", "none"))
    sync_batchnorm: bool = _net(
        False, "compute BatchNorm over all workers; not with --accumulate", compared=False
    )
    initialisation: str = _net(
        "torchvision",
        "initial weights",
        choices=("torchvision", "torch", "he_uniform", "xavier_uniform"),
    )
    zero_init_residual: bool = _net(False, "start with gamma 0 in each block's last BatchNorm")
    drop_path: float = _net(
        0.0, "stochastic depth: probability to skip the last block", "fraction", within="[0, 1)"
    )
    dropout: float = _net(
        0.0, "dropout probability before the last layer", "fraction", within="[0, 1)"
    )

    weights: str = _weights(
        "", "initial weights: .pth, .safetensors, .ckpt or run folder; unused on resume", PATH
    )
    which: str = _weights(
        "last", "checkpoint to load if --weights is a run folder", choices=("last", "best")
    )
    reset_head: bool = _weights(False, "make a new last layer even if the classes are the same")
    freeze: str = _weights(
        "",
        "parts to freeze, such as stem, layer1, layer1.0.conv2, *.bn?, fc",
        "comma-separated",
        compared=False,
    )
    train_only: str = _weights(
        "", "parts to train; all others are frozen", "comma-separated", compared=False
    )

    precision: str = _precision(
        "fp32", "fp16: convolutions in float16, with loss scaling", choices=("fp32", "fp16")
    )
    loss_scale: float = _precision(65536.0, "initial loss scale (fp16)", within="[1, 16777216]")
    loss_scale_interval: int = _precision(
        2000, "finite updates before the scale doubles (fp16)", "updates", at_least=1
    )

    batch_size: int = _training(
        64, "samples per update, over all workers", "samples", at_least=1, aliases=("bs", "batch")
    )
    epochs: int = _training(20, "passes over the training set", "epochs", at_least=1)
    seed: int = _training(
        0, "seed of initial weights, order and augmentation", within="[0, 4294967294]"
    )
    schedule: str = _training(
        "cosine",
        "learning-rate schedule",
        choices=("cosine", "linear", "step", "constant"),
        aliases=("sched",),
    )
    learning_rate: float = _training(
        0.2, "peak learning rate, not scaled by workers", above=0, aliases=("lr",)
    )
    head_lr_factor: float = _training(
        1.0, "last layer's learning rate divided by --learning-rate", above=0, compared=False
    )
    layer_decay: float = _training(
        1.0,
        "a block's learning rate divided by the next block's; 1: off",
        within="(0, 1]",
        compared=False,
    )
    min_learning_rate: float = _training(
        0.0, "final learning rate (cosine, linear)", at_least=0, aliases=("min-lr",)
    )
    warmup_epochs: float = _training(
        0.0, "length of the linear warm-up of the learning rate", "epochs", at_least=0
    )
    milestones: tuple[float, ...] = _training(
        (), "when the learning rate drops (step)", "epochs, comma-separated", above=0
    )
    milestone_factor: float = _training(
        0.1, "factor of the learning rate at each milestone", within="(0, 1)"
    )

    loss: str = _loss(
        "cross_entropy", "loss function", choices=("cross_entropy", "bce", "focal", CUSTOM)
    )
    label_smoothing: float = _loss(0.1, "label smoothing", within="[0, 1)", aliases=("smoothing",))
    smoothing_over: str = _loss(
        "all", "smooth all classes (as PyTorch) or all except the label", choices=("all", "others")
    )
    # The path may differ between workers, because `data.agreement.check_state` compares the weights
    # in the file.
    class_weights: str = _loss(
        "",
        "'balanced' or a file of lines CLASS WEIGHT; empty: weights 1",
        PATH,
        compared=False,
    )

    optimizer: str = _optimizer("sgd", "optimizer", choices=tuple(OPTIMIZERS), aliases=("opt",))
    momentum: float = _optimizer(
        0.9,
        f"momentum, or beta1 of {optimizers_reading('beta2')}",
        within="[0, 1)",
        aliases=("beta1",),
    )
    beta2: float = _optimizer(
        0.0,
        f"beta2 of {optimizers_reading('beta2')}; 0: {explain_zero('beta2')}",
        within="[0, 1)",
    )
    epsilon: float = _optimizer(
        0.0,
        f"eps of {optimizers_reading('epsilon')}; 0: {explain_zero('epsilon')}",
        at_least=0,
        aliases=("eps",),
    )
    nesterov: bool = _optimizer(True, "Nesterov momentum (SGD)", dropped_to=False)
    weight_decay: float = _optimizer(
        5e-4, "weight decay, except on norm layers and biases", at_least=0, aliases=("wd",)
    )
    decay_all: bool = _optimizer(False, "apply weight decay to norm layers and biases, too")
    trust_coefficient: float = _optimizer(
        0.001, "trust coefficient, which scales each layer's step (LARS)", above=0
    )
    clip_norm: float = _optimizer(
        1.0, "clip the global gradient norm to this; 0: no clipping", at_least=0
    )

    ema: float = _average(
        0.0, "decay of the weights' moving average, for evaluation; 0: none", within="[0, 1)"
    )
    ema_every: int = _average(
        1, "interval between updates of the moving average", "updates", at_least=1
    )
    ema_start: float = _average(
        0.0, "start of averaging; before it, the weights are copied", "epochs", at_least=0
    )
    ema_warmup: bool = _average(
        True, "lower the decay of the average's move n to (1 + n) / (10 + n)"
    )

    eval_every: int = _evaluation(
        1, "interval between evaluations; the last epoch is always evaluated", "epochs", at_least=1
    )
    eval_size: int = _evaluation(
        0, "height and width in evaluation; 0: --image-size", PIXELS, at_least=0
    )
    eval_resize: int = _evaluation(
        0,
        f"shorter side before the centre crop; 0: size in evaluation / {CROP}",
        PIXELS,
        at_least=0,
    )
    interpolation: str = _evaluation(
        "",
        "filter that resizes image files; empty: the weights' or bilinear",
        choices=FILTERS,
    )
    monitor: str = _evaluation(
        "top1",
        "metric that selects the best checkpoint",
        choices=("top1", "loss", "macro_f1", "map"),
    )
    patience: int = _evaluation(
        0, "stop after N evaluations without improvement; 0: never", at_least=0
    )

    @property
    def of_files(self) -> bool:
        """Return whether images are decoded from files or records during training."""
        return self.dataset in OF_FILES

    @property
    def colours(self) -> bool:
        """Return whether augmentation changes the colours of training images."""
        return bool(self.policy or self.color_jitter)

    @property
    def mixes(self) -> bool:
        """Return whether mixup or CutMix is on.

        In this case, labels are probabilities, float32 [n, classes].
        """
        return self.mixup > 0 or self.cutmix > 0

    @property
    def evaluation_size(self) -> int:
        """Return the height and width of images in evaluation, in pixels."""
        return self.eval_size or self.image_size

    @property
    def evaluation_resize(self) -> int:
        """Return the shorter side, in pixels, that an image file gets before evaluation crops its
        centre.
        """
        return self.eval_resize or round(self.evaluation_size / CROP)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return lines "warning: …" about settings that are allowed but rarely intended."""
        notes = []
        if late := ", ".join(f"{epoch:g}" for epoch in self.milestones if epoch >= self.epochs):
            notes.append(f"milestones {late}: the run ends after epoch {self.epochs}, before them")
        traits = OPTIMIZERS[self.optimizer]
        if traits.name_without_decay and not self.weight_decay:
            notes.append(
                f"weight_decay 0: {traits.title} adapts only layers with weight decay; "
                f"the run uses plain {traits.name_without_decay}"
            )
        if traits.usual_rate and self.learning_rate >= _FAR_ABOVE * traits.usual_rate:
            notes.append(
                f"learning_rate {self.learning_rate:g}: {traits.title} moves every weight by "
                f"about that much in an update; {traits.usual_rate:g} is usual"
            )
        return tuple(f"warning: {note}" for note in notes)


def check_buildable(recipe: Recipe) -> None:
    """Raise a ValueError if the run was made by `resnet_fn.fit`, because commands cannot build its
    net and data.
    """
    if CUSTOM in (recipe.dataset, recipe.model):
        raise ValueError(
            "model: this run's net and data were passed to resnet_fn.fit, and no command can make "
            "them; call fit again with the run's out_dir, or load the weights by "
            "resnet_fn.load_weights(net, RUN)"
        )
