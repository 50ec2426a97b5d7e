"""This module defines the named recipes as functions. The functions' docstrings give the sources
and the accuracy.

Only the accuracy of `digits` was measured with this package. All other accuracies are quoted from
the sources.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resnet_fn.config.draft import Draft
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import read_recipe_file
from resnet_fn.config.settings import draft_of
from resnet_fn.config.toml_file import ENDING

RECIPES: dict[str, Recipe] = {}  # by name, in the order of this file


def _named(build: Callable[[], Recipe]) -> Callable[..., Recipe]:
    """Store a recipe in `RECIPES`, and let callers change its settings, as in
    `digits(epochs=2)`.
    """
    name = build.__name__
    values = {**vars(build()), "name": name}
    RECIPES[name] = Recipe.unchecked(values)  # the user chose none of them

    @functools.wraps(build)
    def varied(**values: Any) -> Recipe:
        return RECIPES[name].changed(**values)

    del varied.__wrapped__  # so that help() shows the signature of `varied`
    return varied


@_named
def digits() -> Recipe:
    """Train on the package's 1,437 handwritten digits.

    Accuracy is 98 to 99 % after half a minute on two CPU cores.
    """
    return Recipe(model="resnet8", max_shift=1, max_rotation=15.0, max_zoom=0.1)


@_named
def finetune() -> Recipe:
    """Fine-tune the net of `--weights` on your own pictures in `--data-dir`, which has a folder for
    each class.

    Accuracy depends on the pictures. docs/finetuning.md has measured examples.
    """
    return Recipe(
        dataset="imagefolder",
        model="",
        image_size=224,
        crop_scale=0.35,
        flip=True,
        validation_share=0.2,
        batch_size=32,
        warmup_epochs=1.0,
        learning_rate=0.01,
        head_lr_factor=10.0,
        weight_decay=1e-4,
    )


_cifar = functools.partial(
    Recipe,
    image_size=32,
    crop_padding=4,
    flip=True,
    stem="cifar",
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    decay_all=True,
    nesterov=False,
    clip_norm=0.0,
    label_smoothing=0.0,
)


@_named
def cifar10_resnet18() -> Recipe:
    """Train ResNet-18 on CIFAR-10. The accuracy is 93.02 % in kuangliu/pytorch-cifar on one GPU.

    The source is https://github.com/kuangliu/pytorch-cifar. The learning rate is 0.1 for 150
    epochs, 0.01 up to epoch 250, and 0.001 up to epoch 350. The official MindSpore ResNet-18
    reaches 94.02 % on an Ascend 910.
    """
    return _cifar(
        dataset="cifar10", model="resnet18", epochs=350, schedule="step", milestones=(150.0, 250.0)
    )


@_named
def cifar10_resnet50() -> Recipe:
    """Train ResNet-50 on CIFAR-10 with PyTorch's initialisation. Accuracy: 92.98 % in MindSpore,
    92.58 % in PyTorch.

    The net, the stem and the initialisation are from a published report of a port from PyTorch.
    With MindSpore's own initialisation, the accuracy was 91.96 %. Learning rate and schedule are
    usual for ResNets on CIFAR-10.
    """
    return _cifar(
        dataset="cifar10", model="resnet50", initialisation="torch", epochs=200, schedule="cosine"
    )


@_named
def cifar100_resnet18() -> Recipe:
    """Train ResNet-18 on CIFAR-100. The accuracy of the best epoch is 75.61 % in
    weiaicunzai/pytorch-cifar100.

    The sources are https://github.com/weiaicunzai/pytorch-cifar100 and arXiv 1708.04552.
    """
    return _cifar(
        dataset="cifar100",
        model="resnet18",
        epochs=200,
        schedule="step",
        warmup_epochs=1.0,
        milestones=(60.0, 120.0, 160.0),
        milestone_factor=0.2,
        max_rotation=15.0,
        nesterov=True,
    )


_imagenet = functools.partial(
    Recipe,
    dataset="imagefolder",
    model="resnet50",
    image_size=224,
    flip=True,
    momentum=0.9,
    nesterov=False,
    weight_decay=1e-4,
    clip_norm=0.0,
    label_smoothing=0.0,
)


@_named
def imagenet_resnet50_v1() -> Recipe:
    """Train torchvision's first ResNet-50. Top-1 accuracy is 76.13 % on 8 V100 GPUs with 32 images
    each.

    The settings are the defaults of
    https://github.com/pytorch/vision/tree/main/references/classification.
    """
    return _imagenet(
        batch_size=256,
        epochs=90,
        schedule="step",
        learning_rate=0.1,
        milestones=(30.0, 60.0),
        decay_all=True,
    )


@_named
def imagenet_resnet50_v2() -> Recipe:
    """Train torchvision's second ResNet-50. Top-1 accuracy is 80.858 % on 8 A100 GPUs with 128
    images each.

    https://pytorch.org/blog/how-to-train-state-of-the-art-models-using-torchvision-latest-primitives/
    is the source. Unlike this recipe, torchvision starts the warm-up at 0.01 of the peak, and
    changes the learning rate once an epoch.
    """
    return _imagenet(
        image_size=176,
        eval_size=224,
        eval_resize=232,
        policy="trivialaugment",
        erasing=0.1,
        mixup=0.2,
        cutmix=1.0,
        repeats=4,
        batch_size=1024,
        epochs=600,
        schedule="cosine",
        learning_rate=0.5,
        warmup_epochs=5.0,
        weight_decay=2e-5,
        label_smoothing=0.1,
        # torchvision scales its decay 0.99998: 1 - 2e-5 · batch_size · ema_every / epochs.
        ema=0.998908,
        ema_every=32,
        ema_start=5.0,
        ema_warmup=False,
    )


@_named
def imagenet_resnet50_a3() -> Recipe:
    """Train ResNet-50 with procedure A3. Top-1 accuracy is 78.05 % on 4 V100 GPUs with 512 images
    each.

    Procedure A3 is from "ResNet strikes back" (Wightman et al., arXiv 2110.00476, table 2). The
    loss is binary cross-entropy. Mixed labels above 0.2 count as 1, and all others as 0. The
    augmentation is timm's rand-m6-mstd0.5-inc1. The largest magnitude is 10 in timm, but 30 in this
    package. Therefore timm's magnitude 6 is
    18 in this recipe, and timm's noise 0.5 is 1.5. Unlike this recipe, timm applies each operation
    with probability 0.5, and also has the operations solarize-add and invert.
    """
    return _imagenet(
        image_size=160,
        eval_size=224,
        eval_resize=235,
        policy="randaugment",
        policy_magnitude=18,
        policy_noise=1.5,
        mixup=0.1,
        cutmix=1.0,
        label_threshold=0.2,
        batch_size=2048,
        epochs=100,
        schedule="cosine",
        learning_rate=8e-3,
        warmup_epochs=5.0,
        loss="bce",
        optimizer="lamb",
        weight_decay=0.02,
        clip_norm=1.0,
    )


@_named
def imagenet_resnet50_mindspore() -> Recipe:
    """Train the official MindSpore ResNet-50. Top-1 accuracy is 76.70 % on 8 Ascend 910 with 256
    images each.

    The source is official/cv/ResNet in https://gitee.com/mindspore/models. The source trains 1,001
    classes in float16 with `same` padding, but the net here is torchvision's.
    """
    return _imagenet(
        batch_size=2048,
        epochs=90,
        schedule="linear",
        learning_rate=0.8,
        warmup_epochs=2.0,
        label_smoothing=0.1,
    )


@_named
def imagenet_genet50_plus() -> Recipe:
    """Train a gather-excite ResNet-50 (θ⁺). Top-1 accuracy is 78.47 % in MindSpore and 78.12 % in
    the paper.

    The paper is arXiv 1810.12348. The settings are from research/cv/GENet_Res50 in
    https://gitee.com/mindspore/models, for 8 Ascend 910 with 256 images each. MindSpore's net
    differs from this recipe's net in stage 1. MindSpore's net was evaluated on 49,920 images.
    """
    return _imagenet(
        model="genet50_plus",
        batch_size=2048,
        epochs=150,
        schedule="linear",
        learning_rate=0.8,
        label_smoothing=0.1,
    )


def recipe(name: str) -> Recipe:
    """Return the recipe with this name."""
    if name not in RECIPES:
        raise ValueError(f"recipe: {name!r} is unknown; {suggest_name(name, RECIPES)}")
    return RECIPES[name]


def load_recipe(name: str) -> Draft:
    """Read a named recipe or a .toml file as a draft (unchecked settings), which flags may still
    change.
    """
    if name.endswith(ENDING):
        return read_recipe_file(Path(name), RECIPES)
    if {".", "/"} & set(name):
        raise ValueError(f"recipe: {name!r} is unknown; recipe files end in .toml")
    return draft_of(recipe(name), RunOptions())


def differences(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that differ from the recipe named `recipe.name`, or from the defaults if
    there is none.
    """
    base = RECIPES.get(recipe.name, Recipe(name=recipe.name))
    return {name: value for name, value in vars(recipe).items() if value != getattr(base, name)}
