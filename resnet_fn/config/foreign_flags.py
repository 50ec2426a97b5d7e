"""These functions return advice on flags and values of other projects: what to give instead.

People bring command lines of timm, torchvision, fastai, ultralytics, Lightning, MMPretrain and
MindCV.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("foreign_flags.txt")
_FOR_ALL = "* "  # begins advice that also fits commands which compute without training

# Setting → advice → patterns of other projects' values, in lower case, separated by spaces. "16*":
# any that begins with 16. A value gets the first advice with a pattern that it matches.
_VALUES = {
    "device": {
        "MindSpore computes on CPUs and Ascend cards; use one of CPU, Ascend": "cuda* gpu* mps 0* auto xpu",
    },
    "precision": {
        "give fp16, with which the loss scale adapts": "16* amp half float16 mixed* o1 o2 o3",
        "bfloat16 does not exist here; give fp16": "bf16* bfloat16",
        "give fp32": "32* float32 full o0 no none",
    },
    "optimizer": {"give sgd, which has --momentum 0.9": "momentum nesterov"},
    "schedule": {
        "give step, with --milestones 30,60": "multi* step*",
        "give cosine, with --warmup-epochs X": "one* cos* warm*",
        "give linear, which is poly with power 1": "poly*",
        "does not exist here; the nearest is cosine": "tanh",
        "give constant": "none fixed no const*",
        "does not exist here; give step, with --milestones 30,60": "plateau* reduce* exp*",
    },
    "loss": {
        "give cross_entropy": "ce cross* soft* nll* categorical* sparse* label*",
        "give bce": "bce* binary* sigmoid* multilabel*",
    },
    "policy": {
        "give randaugment, with --policy-magnitude N and --policy-noise X": "rand* ra",
        "give trivialaugment": "ta* trivial*",
        "give autoaugment": "auto* aa imagenet original* v0*",
    },
    "dataset": {
        "did you mean imagefolder, with --data-dir FOLDER?": "image* folder* custom",
        "the digits need no files; resnet_fn.fit takes arrays": "mnist* fashion* kmnist svhn*",
        "give cifar10 or cifar100": "cifar*",
    },
    "monitor": {
        "give top1": "acc* top* val_acc* val/acc* eval_acc*",
        "give loss": "val_loss val/loss eval_loss eval/loss train_loss",
        "give macro_f1": "f1* macro* val_f1",
        "give map": "m_ap ap mean_average*",
    },
    "model": {
        "give --model resnet18 --stem d": "resnet18d*",
        "give --model resnet34 --stem d": "resnet34d*",
        "give --model resnet50 --stem d": "resnet50d*",
        "give --model resnet101 --stem d": "resnet101d*",
        "give --model resnet152 --stem d": "resnet152d*",
        "give --model se_resnet18": "seresnet18*",
        "give --model se_resnet34": "seresnet34*",
        "give --model se_resnet50": "seresnet50 seresnet50.* legacy_seresnet50*",
        "give --model se_resnet101": "seresnet101 seresnet101.* legacy_seresnet101*",
        "only residual networks exist here; resnet_fn.fit trains a net of your own": """alexnet*
            beit* convnext* deit* densenet* efficientnet* googlenet* inception* mnasnet* mobilenet*
            regnet* shufflenet* squeezenet* swin* tf_* vgg* vit* xception* yolo*""",
    },
    "mode": {"give graph": "0 jit compile*", "give pynative": "1 eager"},
}


@cache  # read only if a flag is unknown, not for --help
def advice_by_word() -> dict[str, list[str]]:
    """Return the lines of advice about each flag in the table, in the table's order."""
    by_word: dict[str, list[str]] = {}
    advice = ""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            for word in line.split():
                by_word.setdefault(word, []).append(advice)
        elif not line.startswith("#"):
            advice = line
    return by_word


def flags_in(advice: str) -> list[str]:
    """Return the flags that a line of advice names, except those of another command."""
    return re.findall(r"--[a-z][a-z\d-]*", re.sub(r"python -m resnet_fn\.\w+.*", "", advice))


def advice_on_flag(word: str, flags: Collection[str]) -> str:
    """Return the advice to a command with `flags` about another project's flag, or ""."""
    letter = re.fullmatch(r"-([a-zA-Z])\d+", word)  # -j8
    name = letter[1] if letter else word.lstrip("-").replace("_", "-").lower()
    fitting = (advice for advice in advice_by_word().get(name, ()) if _fits(advice, flags))
    return next(fitting, "").removeprefix(_FOR_ALL)


def _fits(advice: str, flags: Collection[str]) -> bool:
    """Return whether a command with `flags` can follow the advice."""
    if named := flags_in(advice):
        return set(named) <= set(flags)
    trains = "--epochs" in flags
    computes = "--device" in flags  # as evaluate and predict do
    return trains or (computes and advice.startswith(_FOR_ALL))


def advice_on_setting(word: str, settings: Collection[str]) -> str:
    """Return the advice about another project's name of a setting in Python or a recipe file."""
    advice = advice_on_flag(word, [f"--{name.replace('_', '-')}" for name in settings])
    # the longest first, because a flag may begin with another's name
    for flag in sorted(flags_in(advice), key=len, reverse=True):
        advice = advice.replace(flag, flag.removeprefix("--").replace("-", "_"))
    return advice


def advice_on_value(setting: str, value: str) -> str:
    """Return the advice about another project's value of a setting, or ""."""
    for advice, patterns in _VALUES.get(setting, {}).items():
        if any(fnmatchcase(value.lower(), pattern) for pattern in patterns.split()):
            return advice
    return ""
