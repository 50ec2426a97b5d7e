"""A ResNet's parameters have different names in this package, torchvision, MindCV and official
MindSpore.

This package has names such as `bn1.moving_mean`, `layer2.0.downsample.0.weight` and `fc.bias`. The
others differ:
    - torchvision and timm name the arrays of a BatchNorm layer `weight`, `bias`, `running_mean` and
      `running_var`.
    - MindCV has `down_sample` for `downsample`, and `classifier` for `fc`.
    - Official MindSpore has `down_sample_layer` for `downsample`, and `end_point` for `fc`.
    - Official MindSpore has `bn1d` and `bn2d` for `bn1` and `bn2` in a BasicBlock.
"""

import re
from collections.abc import Iterable

from resnet_fn.checkpoint.tensor_file import Arrays

STYLES = ("ours", "torchvision", "mindcv", "official")
LEAVES = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_DOWNSAMPLE = {"mindcv": "down_sample", "official": "down_sample_layer"}
_HEAD = {"mindcv": "classifier", "official": "end_point"}
# Names that training frameworks keep beside the weights.
_OPTIMIZER = "moments|momentum|accum|stat|adam_m|adam_v"
_EXTRAS = re.compile(
    rf"(.*\.)?(num_batches_tracked|n_averaged)|({_OPTIMIZER}|ema)\..*|scale_sense|global_step"
    r"|learning_rate|epoch_num|step_num|momentum|beta[12]_power|current_iterator_step|last_overflow_iterator_step"
)


def is_basic(names: Iterable[str]) -> bool:
    """Return whether the names belong to a net whose blocks have two convolutions (BasicBlock)."""
    return not any(re.search(r"layer\d+\.\d+\.conv3\.", name) for name in names)


def is_optimizer_state(prefix: str) -> bool:
    """Return whether names that begin with `prefix`, such as "moments.", are an optimizer's."""
    return re.fullmatch(rf"(.*[./])?({_OPTIMIZER})\.", prefix) is not None


def strip_extras(names: Iterable[str]) -> list[str]:
    """Return `names` without the names of optimizer state, step counts and BatchNorm counters."""
    return [name for name in names if not _EXTRAS.fullmatch(name)]


def rename(name: str, style: str, basic: bool) -> str:
    """Translate one of our names to the naming style `style`.

    `basic` means that the net has BasicBlocks.
    """
    stem, _, leaf = name.rpartition(".")
    if style == "torchvision":
        return f"{stem}.{LEAVES.get(leaf, leaf)}"
    if style in _DOWNSAMPLE:
        name = name.replace(".downsample.", f".{_DOWNSAMPLE[style]}.")
        name = re.sub(r"^fc\.", f"{_HEAD[style]}.", name)
    if style == "official" and basic:
        name = re.sub(r"(layer\d+\.\d+\.bn[12])\.", r"\1d.", name)
    return name


def recognise_style(names: Iterable[str]) -> str:
    """Return the naming style of a file's parameters, which is one of STYLES."""
    names = strip_extras(names)
    first = {name.split(".")[0] for name in names}
    if any(".convolution.weight" in name for name in names):
        raise ValueError("these are names of the package transformers; give timm's file of the net")
    if any(re.search(r"\.running_(mean|var)$", name) for name in names):
        return "torchvision"
    for style, head in _HEAD.items():
        if head in first or any(f".{_DOWNSAMPLE[style]}." in name for name in names):
            return style
    if "conv1" in first and any(name.startswith("layer1.") for name in names):
        return "ours"
    examples = ", ".join(sorted(names)[:3]) or "none at all"
    raise ValueError(
        f"names such as {examples} belong to no known naming style ({', '.join(STYLES)})"
    )


def to_ours(names: Iterable[str], style: str) -> dict[str, str]:
    """Return a dict from a file's names to our names, without the names of optimizer state."""
    names = strip_extras(names)
    back = {new: old for old, new in LEAVES.items()}
    # a module with a running mean or variance is torchvision's norm layer
    statistics = (".running_mean", ".running_var")
    norms = {name.rpartition(".")[0] for name in names if name.endswith(statistics)}
    ours = {}
    for name in names:
        stem, _, leaf = name.rpartition(".")
        new = f"{stem}.{back.get(leaf, leaf)}" if stem in norms else name
        if style in _DOWNSAMPLE:
            new = new.replace(f".{_DOWNSAMPLE[style]}.", ".downsample.")
            new = re.sub(rf"^{_HEAD[style]}\.", "fc.", new)
        if style == "official":
            new = re.sub(r"(layer\d+\.\d+\.bn[12])d\.", r"\1.", new)
        ours[name] = new
    return ours


def differences(style: str, arrays: Arrays) -> tuple[str, bool]:
    """Return how nets of `style` differ from ours, or "", and whether these nets and ours cannot
    share weights.
    """
    stem = arrays.get("conv1.weight")
    # only then a max-pool follows
    if style == "mindcv" and stem is not None and stem.shape[2:3] == (7,):
        return (
            "MindCV's stem max-pool pads only right and below, ours all sides, so features shift "
            "one pixel",
            False,
        )
    if style == "official" and not is_basic(arrays):
        return (
            "official MindSpore ResNet-50, 101 and 152 pad strided convolutions with `same` "
            "instead of equally on all "
            "sides, and have BatchNorm eps 1e-4 instead of 1e-5"
        ), True
    if style == "torchvision" and all(
        any(part in name for name in arrays) for part in (".se.gather.", ".se.mlp.")
    ):
        return (
            "timm's gather-excite has no ReLU between gather and excite; ours follows the authors' "
            "models",
            False,
        )
    return "", False
