"""The half of a recipe that says which samples an update sees, and how they look."""

import dataclasses
from functools import partial

from resnet_fn.config.fields import Needs, Settings, setting

DATASETS = ("digits", "cifar10", "cifar100", "imagefolder", "mindrecord", "synthetic")
_FILES = ("imagefolder", "mindrecord")  # sets that are decoded on the fly
POLICIES = ("", "trivialaugment", "randaugment", "autoaugment")
_data = partial(setting, "data")
_augment = partial(setting, "augmentation")
_evaluation = partial(setting, "evaluation")
_mixing = partial(setting, "mixing of images")

_IN_MEMORY = Needs(
    lambda r: not r.of_files, "is for sets in memory; give 0 (image files take crop_scale, flip and policy)"
)
_OF_FILES = Needs(lambda r: r.of_files, "is for sets of image files; leave it out (sets in memory take crop_padding)")
_IN_COLOUR = Needs(
    lambda r: r.dataset != "digits", "needs colour images of 0..255, which the digits are not; leave it out"
)
_RESIZE = Needs(lambda r: r.of_files, "is for sets of image files; sets in memory are resized to --eval-size")
_CROP = Needs(
    lambda r: r.evaluation_resize >= r.evaluation_size,
    "is below the crop of {r.evaluation_size}; give {r.evaluation_size} or more",
)
_BOTH_MIXES = Needs(lambda r: r.mixup > 0 and r.cutmix > 0, "needs both --mixup and --cutmix")
_RANDAUGMENT = Needs(lambda r: r.policy == "randaugment", "needs --policy randaugment")
_SEVERAL = (
    Needs(lambda r: r.dataset == "imagefolder", "needs --dataset imagefolder", other="dataset"),
    Needs(lambda r: r.loss != "cross_entropy", "needs --loss bce or focal", other="loss"),
    Needs(lambda r: r.label_smoothing == 0, "needs --label-smoothing 0", other="label_smoothing"),
    Needs(lambda r: r.monitor != "top1", "needs --monitor map, macro_f1 or loss", other="monitor"),
    Needs(lambda r: not r.class_weights, "goes without --class-weights", other="class_weights"),
    Needs(lambda r: r.sampling == "shuffle", "needs --sampling shuffle", other="sampling"),
)
_SYNTHETIC = Needs(lambda r: r.dataset == "synthetic", "needs --dataset synthetic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """Fields of `Recipe` about data; see there."""

    dataset: str = _data("digits", "data set", choices=DATASETS)
    image_size: int = _data(16, "height and width that the network sees", "pixels", at_least=1, aliases=("img-size",))
    eval_size: int = _evaluation(0, "height and width in evaluation; 0: image_size", "pixels", at_least=0)
    eval_resize: int = _evaluation(
        0,
        "shorter side before evaluation's centre crop; 0: eval_size / 0.875",
        "pixels",
        at_least=0,
        needs=(_RESIZE, _CROP),
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
        0.08,
        "smallest area of a random resized crop (sets of files)",
        "fraction of 1",
        within="(0, 1]",
        needs=_OF_FILES,
    )
    flip: bool = _augment(False, "mirror half of the training images")
    policy: str = _augment("", "automatic augmentation; empty: none", choices=POLICIES, needs=_IN_COLOUR)
    policy_ops: int = _augment(2, "operations per image (randaugment)", "operations", at_least=1, needs=_RANDAUGMENT)
    policy_magnitude: int = _augment(
        9, "strength of each operation (randaugment), 0..30", within="0..30", needs=_RANDAUGMENT
    )
    policy_noise: float = _augment(
        0.0,
        "standard deviation of the strength from image to image (randaugment), of 0..30",
        within="0..30",
        needs=_RANDAUGMENT,
    )
    color_jitter: float = _augment(
        0.0, "random brightness, contrast and saturation, each way", "fraction of 1", within="[0, 1)", needs=_IN_COLOUR
    )
    erasing: float = _augment(0.0, "probability of erasing a random rectangle", "fraction of 1", within="[0, 1]")
    mixup: float = _mixing(0.0, "alpha of mixup's Beta distribution; 0: no mixup", at_least=0)
    cutmix: float = _mixing(0.0, "alpha of CutMix's Beta distribution; 0: no CutMix", at_least=0)
    mix_switch: float = _mixing(
        0.5, "probability of CutMix where mixup is on too", "fraction of 1", within="[0, 1]", needs=_BOTH_MIXES
    )
    mix_off_epochs: int = _mixing(
        0,
        "last epochs without mixup and CutMix",
        "epochs",
        at_least=0,
        needs=Needs(lambda r: r.mixes, "needs --mixup or --cutmix"),
    )
    label_threshold: float = _mixing(
        0.0,
        "mixed labels above it count as 1, all others as 0; 0: keep them",
        "fraction",
        within="[0, 0.5)",
        needs=Needs(lambda r: r.mixes, "needs mixup or cutmix"),
    )
    repeats: int = _data(
        1,
        "times that an update sees each of its images, differently augmented",
        "times",
        at_least=1,
        needs=Needs(
            lambda r: r.batch_size % r.repeats == 0, "does not divide the batch size {r.batch_size}", other="batch_size"
        ),
    )
    sampling: str = _data(
        "shuffle",
        "what an epoch sees: every sample once, or every class equally often",
        choices=("shuffle", "balanced"),
    )
    validation_share: float = _data(
        0.0,
        "part of every class that validates, where the folder has no val; the run keeps it",
        "fraction of 1",
        within="[0, 1)",
        example=0.2,
        needs=Needs(lambda r: r.dataset == "imagefolder", "is for --dataset imagefolder; leave it out"),
    )
    multi_label: bool = _data(
        False, "images of any number of classes, in --train-list and --val-list with ; between them", needs=_SEVERAL
    )
    on_bad_sample: str = _data("error", "what to do about files that cannot be decoded", choices=("error", "skip"))
    synthetic_samples: int = _data(
        2048, "training images of the synthetic set; an eighth as many test", "samples", at_least=8, needs=_SYNTHETIC
    )
    synthetic_classes: int = _data(10, "classes of the synthetic set", "classes", at_least=1, needs=_SYNTHETIC)

    @property
    def of_files(self) -> bool:
        """Whether images are decoded from files on the fly."""
        return self.dataset in _FILES

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
