"""Settings that another one brings to life: given without it they would be ignored, so they are refused.

Checked for what a user types, not for a whole recipe: `--policy ""` turns a recipe's augmentation off without asking
that its strength be taken back too.
"""

from collections.abc import Callable, Iterable

from resnet_fn.config.recipe import Recipe

# setting: when it counts, and what to do where it does not
_NEEDS: dict[str, tuple[Callable[[Recipe], bool], str]] = {
    "policy_ops": (lambda r: r.policy == "randaugment", "needs --policy randaugment"),
    "policy_magnitude": (lambda r: r.policy == "randaugment", "needs --policy randaugment"),
    "eval_resize": (
        lambda r: r.dataset in ("imagefolder", "mindrecord"),
        "is for sets of image files; sets in memory are resized to --eval-size",
    ),
    "mix_switch": (lambda r: r.mixup > 0 and r.cutmix > 0, "needs both --mixup and --cutmix"),
    "mix_off_epochs": (lambda r: r.mixes, "needs --mixup or --cutmix"),
    "synthetic_samples": (lambda r: r.dataset == "synthetic", "needs --dataset synthetic"),
    "synthetic_classes": (lambda r: r.dataset == "synthetic", "needs --dataset synthetic"),
    "milestone_factor": (lambda r: r.schedule == "step", "needs --schedule step"),
    "min_learning_rate": (lambda r: r.schedule in ("cosine", "linear"), "needs --schedule cosine or linear"),
    "trust_coefficient": (lambda r: r.optimizer == "lars", "needs --optimizer lars"),
    "ema_every": (lambda r: r.ema > 0, "needs --ema"),
    "ema_start": (lambda r: r.ema > 0, "needs --ema"),
    "smoothing_over": (lambda r: r.label_smoothing > 0, "needs --label-smoothing"),
    "loss_scale": (lambda r: r.precision == "fp16", "needs --precision fp16"),
    "loss_scale_interval": (lambda r: r.precision == "fp16", "needs --precision fp16"),
}


def check_given(recipe: Recipe, given: Iterable[str]) -> None:
    """Refuse settings that were given and would be ignored.

    Args:
        recipe: with what was given.
        given: names of the settings that were.

    Raises:
        ValueError: names the setting, its value and what it needs.
    """
    for name in given:
        counts, fix = _NEEDS.get(name, (None, ""))
        if counts is not None and not counts(recipe):
            raise ValueError(f"{name}: {getattr(recipe, name)} would change nothing: it {fix}")
