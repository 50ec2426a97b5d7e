"""`RULES` lists settings that have an effect, or are allowed, only with certain values of others.

    Rule("ema_every ema_start ema_warmup", lambda ema: ema > 0, "needs --ema")

If `ema` is 0, this rule is broken. A recipe's `ema_every` is then dropped, and if it is not the
default, with the note "ema_every 2 is left out: it needs --ema". If the user gives `--ema-every 2`,
that is the error "ema_every: 2 needs --ema".

    Rule("val_list", lambda train_list: train_list, "needs --train-list, too", on_break="error")

`val_list` is never dropped: in a recipe file it is an error, too.

    Rule(
        "multi_label",
        lambda label_smoothing: label_smoothing == 0,
        "needs --label-smoothing 0",
        on_break=Replace(0.0),
    )

If the user gives `--multi-label`, a recipe's `label_smoothing` becomes 0.0, with the note
"label_smoothing 0.1 becomes 0.0: multi_label needs --label-smoothing 0". If the user gives both,
that is an error of `multi_label`. `Draft.resolve` applies the rules.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from resnet_fn.config.declaration import BALANCED, CUSTOM
from resnet_fn.config.optimizers import OPTIMIZER_SETTINGS, OPTIMIZERS, optimizers_reading


class Replace(NamedTuple):
    """A broken rule gives this value to the setting that its condition reads, which is only one."""

    value: Any


class Rule(NamedTuple):
    """A rule lists settings that make sense only if a condition holds."""

    settings: str  # names of the settings that need the condition, separated by spaces
    # The condition. The names of its parameters are the settings that it reads: besides the
    # setting itself at least one other, to which the setting gives way. A plain function or lambda,
    # without keyword-only or starred parameters.
    holds: Callable[..., Any]
    # What follows the setting in the note or error: a reason, and after ";" a fix. "{epochs}" is
    # replaced by the value of epochs.
    text: str
    # What happens if the condition is broken, for each of the rule's settings that asks for
    # something (`SourcedValue.asks_for_something`):
    #   "drop"    The setting gets `dropped_to`, with a note unless it is a default. An error if the
    #             user chose it, and nothing that the condition reads is stronger, by `Source`.
    #   Replace   What the condition reads gets this value, with a note. An error if the user chose
    #             that one, and the setting is not stronger.
    #   "error"   An error.
    # Errors are of the setting, not of what the condition reads.
    on_break: Literal["drop", "error"] | Replace = "drop"
    # whether stored runs, which may be older than the rule, and commands that resume one need not
    # obey it
    only_new_runs: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the settings that need the condition."""
        return tuple(self.settings.split())

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of the settings that the condition reads."""
        code = self.holds.__code__  # `inspect.signature` takes 3 ms for all rules
        return code.co_varnames[: code.co_argcount]

    def broken_by(self, settings: Mapping[str, Any]) -> str:
        """Return the text of this rule if `settings` break it, else "".

        If a setting that the condition reads is missing, the rule is not broken.
        """
        read = {name: settings[name] for name in self.reads if name in settings}
        if len(read) < len(self.reads) or self.holds(**read):
            return ""
        return self.text.format(**read)


# data sets whose images are decoded from files or records during training
OF_FILES = ("imagefolder", "mindrecord")
DECREASING = ("cosine", "linear")  # the schedules that end at `min_learning_rate`
_NEEDS_IMAGE_FILES = "is for data sets of image files; leave it out"
_NEEDS_UNPACKED_IMAGES = (
    "needs --dataset imagefolder; pack has checked MindRecord's images, so leave it out"
)
_ONLY_IN_PYTHON = "is only for resnet_fn.fit in Python; give a data set or net of this package"


def _trains_head(freeze: str, train_only: str) -> bool:
    """Return whether a weight of the last layer is trained."""
    return any(
        not _is_listed(path, freeze) and (not train_only or _is_listed(path, train_only))
        for path in ("fc.weight", "fc.bias")
    )


def _is_listed(path: str, names: str) -> bool:
    """Return whether `names`, separated by commas, have a parameter of the last layer: its part,
    `fc`, or its path. They may have * and ?, as `models.parts.select` understands them.
    """
    patterns = [name.strip() for name in names.split(",")]
    return any(fnmatchcase("fc", name) or fnmatchcase(path, name) for name in patterns)


def _rule_of_optimizers(setting: str) -> Rule:
    """Return the rule of a setting that only some optimizers read."""
    return Rule(
        setting,
        lambda optimizer: setting in OPTIMIZERS[optimizer].settings,
        f"needs --optimizer {optimizers_reading(setting, 'or').lower()}",
    )


# Settings that have no effect in `fit`, because the net and the data are the caller's.
NOT_OF_FIT = (
    "image_size repeats max_shift max_rotation max_zoom crop_padding flip policy color_jitter "
    "erasing mixup cutmix stem norm sync_batchnorm initialisation zero_init_residual drop_path "
    "dropout weights reset_head freeze train_only precision head_lr_factor layer_decay eval_size "
    "mean std data_dir train_list val_list feed"
)
# A rule that reads a setting which is not among its own `settings` stands below the rules that
# change it; tests/config/test_rules.py checks this.
RULES = (
    # a caller's own net, data and loss
    Rule(
        NOT_OF_FIT,
        lambda dataset: dataset != CUSTOM,
        "is for this package's data sets and nets; leave it out",
    ),
    Rule(
        "loss",
        lambda loss, dataset: loss != CUSTOM or dataset == CUSTOM,
        "is for resnet_fn.fit; give cross_entropy",
    ),
    Rule(
        "dataset",
        lambda dataset, model: dataset != CUSTOM or model == CUSTOM,
        _ONLY_IN_PYTHON,
        on_break="error",
    ),
    Rule(
        "model",
        lambda dataset, model: model != CUSTOM or dataset == CUSTOM,
        _ONLY_IN_PYTHON,
        on_break="error",
    ),
    # data
    Rule(
        "monitor",
        lambda monitor, multi_label: monitor != "map" or multi_label,
        "needs --multi-label",
    ),
    Rule(
        "multi_label",
        lambda dataset: dataset == "imagefolder",
        "needs --dataset imagefolder",
        on_break="error",
    ),
    Rule(
        "multi_label",
        lambda loss: loss != "cross_entropy",
        "needs --loss bce or focal",
        on_break=Replace("bce"),
    ),
    Rule(
        "multi_label",
        lambda label_smoothing: label_smoothing == 0,
        "needs --label-smoothing 0",
        on_break=Replace(0.0),
    ),
    Rule(
        "multi_label",
        lambda monitor: monitor != "top1",
        "needs --monitor map, macro_f1 or loss",
        on_break=Replace("map"),
    ),
    Rule(
        "multi_label",
        lambda class_weights: not class_weights,
        "excludes --class-weights; give one",
        on_break=Replace(""),
    ),
    Rule(
        "multi_label",
        lambda sampling: sampling == "shuffle",
        "needs --sampling shuffle",
        on_break=Replace("shuffle"),
    ),
    Rule(
        "class_weights",
        lambda class_weights, sampling: class_weights != BALANCED or sampling != BALANCED,
        "counts rare classes twice with --sampling balanced; give one of them",
        on_break="error",
        only_new_runs=True,
    ),
    Rule(
        "validation_share split_seed group_by",
        lambda dataset: dataset == "imagefolder",
        "needs --dataset imagefolder; leave it out with other data",
    ),
    Rule(
        "split_seed group_by",
        lambda validation_share: validation_share > 0,
        "needs --validation-share",
    ),
    Rule("val_list", lambda train_list: train_list, "needs --train-list, too", on_break="error"),
    Rule(
        "train_list",
        lambda val_list, validation_share: val_list or validation_share > 0,
        "needs --val-list FILE, or --validation-share 0.2 to split the list",
        on_break="error",
    ),
    Rule(
        "synthetic_samples synthetic_classes",
        lambda dataset: dataset == "synthetic",
        "needs --dataset synthetic",
    ),
    Rule(
        "on_bad_sample check_files data_threads crop_scale eval_resize interpolation",
        lambda dataset: dataset in OF_FILES,
        _NEEDS_IMAGE_FILES,
    ),
    Rule(
        "on_bad_sample",
        lambda dataset, on_bad_sample: dataset != "mindrecord" or on_bad_sample == "error",
        _NEEDS_UNPACKED_IMAGES,
        only_new_runs=True,
    ),
    Rule(
        "check_files",
        lambda dataset: dataset != "mindrecord",
        _NEEDS_UNPACKED_IMAGES,
        only_new_runs=True,
    ),
    # images
    Rule(
        "max_shift max_rotation max_zoom crop_padding",
        lambda dataset: dataset not in OF_FILES,
        "is for data sets in memory; give 0",
    ),
    Rule(
        "policy color_jitter",
        lambda dataset: dataset != "digits",
        "needs colour images, which the digits are not",
    ),
    Rule(
        "policy_ops policy_noise policy_magnitude",
        lambda policy: policy == "randaugment",
        "needs --policy randaugment",
    ),
    Rule(
        "eval_resize",
        lambda eval_resize, eval_size, image_size: (
            not eval_resize or eval_resize >= (eval_size or image_size)
        ),
        "is below the crop (eval_size {eval_size}, image_size {image_size}); give 0",
    ),
    # mixing of images
    Rule(
        "mixup cutmix mix_off_epochs",
        lambda mix_off_epochs, epochs: mix_off_epochs < epochs,
        "needs --mix-off-epochs below epochs ({epochs})",
    ),
    Rule(
        "mix_off_epochs label_threshold",
        lambda mixup, cutmix: mixup or cutmix,
        "needs --mixup or --cutmix",
    ),
    Rule("mix_switch", lambda mixup, cutmix: mixup and cutmix, "needs both --mixup and --cutmix"),
    Rule("label_threshold", lambda loss: loss != "cross_entropy", "needs --loss bce or focal"),
    # net and weights
    Rule("sync_batchnorm zero_init_residual", lambda norm: norm == "batch", "needs --norm batch"),
    Rule(
        "zero_init_residual",
        lambda weights: not weights,
        "is for random first weights, which --weights replaces; leave it out",
        only_new_runs=True,
    ),
    Rule("which reset_head", lambda weights: weights, "needs weights; give --weights FILE"),
    Rule(
        "train_only",
        lambda freeze: not freeze,
        "cannot be used with --freeze {freeze}; give one of them",
        on_break="error",
    ),
    Rule(
        "head_lr_factor",
        _trains_head,
        "needs a last layer that is trained; leave it out, or train fc (--freeze, --train-only)",
    ),
    # updates
    Rule(
        "repeats",
        lambda repeats, batch_size: batch_size % repeats == 0,
        "does not divide batch {batch_size}; give a batch size that is a multiple of {repeats}, or "
        "--repeats 1",
        on_break="error",
    ),
    Rule(
        "accumulate",
        lambda accumulate, sync_batchnorm: accumulate == 1 or not sync_batchnorm,
        "cannot be used with --sync-batchnorm; give --accumulate 1 or --no-sync-batchnorm",
    ),
    Rule(
        "nesterov",
        lambda optimizer: "nesterov" in OPTIMIZERS[optimizer].settings,
        f"is for {optimizers_reading('nesterov')}, not for {{optimizer}}; give --no-nesterov",
    ),
    Rule("nesterov", lambda momentum: momentum > 0, "needs momentum above 0; give --no-nesterov"),
    # the rule of nesterov is above: its text names the flag that turns it off
    *(_rule_of_optimizers(setting) for setting in OPTIMIZER_SETTINGS if setting != "nesterov"),
    Rule(
        "trust_coefficient",
        lambda weight_decay: weight_decay > 0,
        "needs weight decay; give --weight-decay above 0",
    ),
    # learning rate
    Rule(
        "milestones milestone_factor", lambda schedule: schedule == "step", "needs --schedule step"
    ),
    Rule(
        "schedule",
        lambda schedule, milestones: schedule != "step" or milestones,
        "needs --milestones",
        on_break="error",
    ),
    Rule(
        "min_learning_rate",
        lambda schedule: schedule in DECREASING,
        "needs --schedule cosine or linear",
    ),
    Rule(
        "min_learning_rate",
        lambda min_learning_rate, learning_rate: min_learning_rate <= learning_rate,
        "is above learning_rate {learning_rate}; give a smaller --min-learning-rate",
        on_break="error",
    ),
    Rule(
        "warmup_epochs",
        lambda warmup_epochs, epochs: warmup_epochs <= epochs,
        "is above epochs {epochs}; give --warmup-epochs {epochs} or less",
        on_break="error",
    ),
    # moving average
    Rule(
        "ema ema_start",
        lambda ema_start, epochs: ema_start < epochs,
        "needs --ema-start below epochs ({epochs})",
    ),
    Rule("ema_every ema_start ema_warmup", lambda ema: ema > 0, "needs --ema"),
    # loss
    Rule(
        "loss",
        lambda loss, label_smoothing, class_weights: (
            loss != CUSTOM or not (label_smoothing or class_weights)
        ),
        "is a function, which takes neither label_smoothing nor class_weights; leave them out",
        on_break="error",
    ),
    Rule("smoothing_over", lambda label_smoothing: label_smoothing > 0, "needs --label-smoothing"),
    # precision and device
    Rule(
        "loss_scale loss_scale_interval max_skips",
        lambda precision: precision == "fp16",
        "needs --precision fp16",
    ),
    Rule(
        "fast_math",
        lambda device: device == "Ascend",
        "needs --device Ascend; leave it out on a CPU",
    ),
    Rule(
        "threads",
        lambda device: device == "CPU",
        "is for kernels on a CPU; leave it out on a card",
        only_new_runs=True,
    ),
)


def without_effect(settings: Mapping[str, Any], rules: Iterable[Rule] = RULES) -> set[str]:
    """Return the names in `settings` that have no effect, by those of `rules` that drop them.

    As if the user had chosen none of them. Default values are among them, too.
    """
    return {
        name
        for rule in rules
        if rule.on_break == "drop" and rule.broken_by(settings)
        for name in rule.names
        if name in settings
    }
