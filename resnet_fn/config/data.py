"""The half of a recipe that says which samples an update sees, and how they look."""

import dataclasses

from resnet_fn.config.fields import field as _field
from resnet_fn.config.fields import require as _require

DATASETS = ("digits", "cifar10", "cifar100", "imagefolder", "mindrecord", "synthetic")
_FILES = ("imagefolder", "mindrecord")  # sets that are decoded on the fly, in MindSpore's C++ pipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFields:
    """Fields of `Recipe` about data; see there."""

    dataset: str = _field("digits", "data set", choices=DATASETS)
    image_size: int = _field(16, "height and width that the network sees", "pixels")
    eval_size: int = _field(0, "the same in evaluation; 0: image_size", "pixels")
    eval_resize: int = _field(0, "shorter side before evaluation's centre crop; 0: eval_size / 0.875", "pixels")
    max_shift: int = _field(0, "random shift of a training image, each way", "pixels")
    max_rotation: float = _field(0.0, "random rotation of a training image, each way", "degrees")
    max_zoom: float = _field(0.0, "random zoom of a training image, each way", "fraction of 1")
    crop_padding: int = _field(0, "zero padding before a random crop of the old size (sets in memory)", "pixels")
    crop_scale: float = _field(0.08, "smallest area of a random resized crop (sets of files)", "fraction of 1")
    flip: bool = _field(False, "mirror half of the training images")
    policy: str = _field(
        "", "automatic augmentation; empty: none", choices=("", "trivialaugment", "randaugment", "autoaugment")
    )
    policy_ops: int = _field(2, "operations per image (randaugment)", "operations")
    policy_magnitude: int = _field(9, "strength of each operation (randaugment), 0..30")
    policy_noise: float = _field(0.0, "standard deviation of the strength from image to image (randaugment), of 0..30")
    color_jitter: float = _field(0.0, "random brightness, contrast and saturation, each way", "fraction of 1")
    erasing: float = _field(0.0, "probability of erasing a random rectangle", "fraction of 1")
    mixup: float = _field(0.0, "alpha of mixup's Beta distribution; 0: no mixup")
    cutmix: float = _field(0.0, "alpha of CutMix's Beta distribution; 0: no CutMix")
    mix_switch: float = _field(0.5, "probability of CutMix where mixup is on too", "fraction of 1")
    mix_off_epochs: int = _field(0, "last epochs without mixup and CutMix", "epochs")
    label_threshold: float = _field(0.0, "mixed labels above it count as 1, all others as 0; 0: keep them", "fraction")
    repeats: int = _field(1, "times that an update sees each of its images, differently augmented", "times")
    on_bad_sample: str = _field("error", "what to do about files that cannot be decoded", choices=("error", "skip"))
    synthetic_samples: int = _field(2048, "training images of the synthetic set; an eighth as many test", "samples")
    synthetic_classes: int = _field(10, "classes of the synthetic set", "classes")

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

    def check_data(self) -> None:
        """Refuse values that cannot work, and those that this data set would have to ignore."""
        for name in ("image_size", "policy_ops", "repeats", "synthetic_samples", "synthetic_classes"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "is too small; give 1 or more")
        for name in ("max_shift", "eval_size", "eval_resize", "crop_padding", "mixup", "cutmix", "mix_off_epochs"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "is negative; give 0 or more")
        for name in ("max_zoom", "color_jitter"):
            _require(0 <= getattr(self, name) < 1, name, getattr(self, name), "is not in [0, 1)")
        for name in ("erasing", "mix_switch"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "is not in [0, 1]")
        _require(0 <= self.label_threshold < 0.5, "label_threshold", self.label_threshold, "is not in [0, 0.5)")
        _require(
            not self.label_threshold or self.mixes, "label_threshold", self.label_threshold, "needs mixup or cutmix"
        )
        _require(0 < self.crop_scale <= 1, "crop_scale", self.crop_scale, "is not in (0, 1]; give 0.08")
        _require(0 <= self.max_rotation <= 180, "max_rotation", self.max_rotation, "is not in 0..180 degrees")
        _require(0 <= self.policy_magnitude <= 30, "policy_magnitude", self.policy_magnitude, "is not in 0..30")
        noise = self.policy_noise
        _require(0 <= noise <= 30, "policy_noise", noise, "is not in 0..30")
        _require(not noise or self.policy == "randaugment", "policy_noise", noise, "needs --policy randaugment")
        _require(
            self.synthetic_samples >= 8, "synthetic_samples", self.synthetic_samples, "is too small; give 8 or more"
        )
        resize, crop = self.evaluation_resize, self.evaluation_size
        _require(resize >= crop, "eval_resize", self.eval_resize, f"is below the crop of {crop}; give {crop} or more")
        batch_size = getattr(self, "batch_size", self.repeats)
        _require(
            batch_size % self.repeats == 0, "repeats", self.repeats, f"does not divide the batch size {batch_size}"
        )
        self._check_fit()

    def _check_fit(self) -> None:
        if self.dataset in _FILES:
            for name in ("max_shift", "max_rotation", "max_zoom", "crop_padding"):
                fix = "is for sets in memory; give 0 (image files take crop_scale, flip and policy)"
                _require(not getattr(self, name), name, getattr(self, name), fix)
        else:
            fix = "is for sets of image files; leave it out (sets in memory take crop_padding)"
            _require(self.crop_scale == 0.08, "crop_scale", self.crop_scale, fix)
        if self.dataset == "digits":
            for name in ("policy", "color_jitter"):
                fix = "needs colour images of 0..255, which the digits are not; leave it out"
                _require(not getattr(self, name), name, getattr(self, name), fix)
