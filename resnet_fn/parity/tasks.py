"""Make the plan of the updates that the user asks for."""

import dataclasses
from collections.abc import Callable
from typing import Any

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.printing import warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.rules import DECREASING
from resnet_fn.config.setting_names import flag_name
from resnet_fn.config.wording import words_of
from resnet_fn.parity.asked import Asked
from resnet_fn.parity.batches import make_batches, recipe_batches
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.common import place_of
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Batch
from resnet_fn.runtime.user_files import imports_beside, load_function

RECIPE = "digits"
CHANNELS_AND_CLASSES = {"digits": (1, 10), "cifar10": (3, 10), "cifar100": (3, 100)}
OTHER = (3, 1000)
OWN_NET = (3, 10, 32)  # channels, classes and height of the images for a user's net
MIXING = ("mixup", "cutmix", "mix_switch", "repeats", "label_threshold")  # change random images
GENTLE = 1e-3  # the learning rate for an optimizer that is not the recipe's


def ladder_recipe(
    recipe: Recipe, batch_size: int, learning_rate: float | None, changes: dict[str, Any]
) -> Recipe:
    """Return the recipe with another batch size, and with the further settings in `changes`.

    If `learning_rate` is None, the rate is 0.001 for a changed optimizer, else the recipe's scaled
    with the batch size.
    """
    # Without the scale, a small batch makes any net chaotic, and only rounding is visible (arXiv
    # 1706.02677).
    scale = batch_size / recipe.batch_size
    other = changes.get("optimizer", recipe.optimizer) != recipe.optimizer
    rate = (
        (GENTLE if other else recipe.learning_rate * scale)
        if learning_rate is None
        else learning_rate
    )
    least = min(recipe.min_learning_rate * scale, rate)
    scaled = {"batch_size": batch_size, "learning_rate": rate}
    if changes.get("schedule", recipe.schedule) in DECREASING:
        scaled["min_learning_rate"] = least
    return recipe.changed(**{**scaled, **changes})


def plan_asked_for(asked: Asked) -> Plan:
    """Make the plan of the updates that the flags describe."""
    of_images = ("steps", "batch_size", "image_size", "in_channels", "num_classes")
    counts = {
        name: value
        for name in (*of_images, "accumulate")
        if (value := getattr(asked, name)) is not None
    }
    small = [
        f"--{flag_name(name)}: {value} is too small; give 1 or more"
        for name, value in counts.items()
        if value < 1
    ]
    cli.raise_usage_errors(*((True, message) for message in small))
    given = [name for name in (*of_images, *MIXING) if name in {**counts, **asked.settings}]
    if asked.inputs and (name := next(iter(given), None)):
        raise cli.UsageError(
            f"--{flag_name(name)}: --inputs already defines the batches; leave out one of the flags"
        )
    with cli.as_usage_error():
        named = Recipe.from_draft(recipes.load_recipe(asked.recipe or RECIPE).complete())
        size, settings = asked.batch_size or 4, dict(asked.settings)
        recipe = ladder_recipe(named, size, asked.learning_rate, settings)
        if lost := sorted(named.chosen.keys() - recipe.chosen.keys()):
            warn(f"{asked.recipe}: without effect beside the flags, so left out: {', '.join(lost)}")
        if asked.inputs:
            batches = _batches_of(asked.inputs)
        else:
            channels, classes, pixels = image_shape(asked, named)
            made = make_batches(asked.steps or 5, size, channels, pixels, classes, asked.seed or 0)
            batches = recipe_batches(recipe, made, classes, asked.seed or 0)
        custom = ("loss" in asked.custom, "optimizer" in asked.custom)
        plan = plan_of(recipe, batches, asked.accumulate or 1, asked.seed or 0, *custom)
    net = dataclasses.replace(plan.net, classes=image_shape(asked, named)[1])
    return dataclasses.replace(plan, net=net)


def _batches_of(location: str) -> list[Batch]:
    """Return the batches that the function of --inputs makes."""
    make = load_function(location, "--inputs")
    with imports_beside(location):
        made = make()
    return list(returned("--inputs", location, made, list | tuple, "a list of (inputs, labels)"))


def image_shape(asked: Asked, recipe: Recipe) -> tuple[int, int, int]:
    """Return the channels, classes and height of the random images, from the flags or from
    defaults.
    """
    channels, classes = CHANNELS_AND_CLASSES.get(recipe.dataset, OTHER)
    usual = OWN_NET if asked.net or asked.reference else (channels, classes, recipe.image_size)
    return (
        asked.in_channels or usual[0],
        asked.num_classes or usual[1],
        asked.image_size or usual[2],
    )


def load_functions(asked: Asked) -> dict[str, Any]:
    """Load the functions of the user that the flags name, and return them by flag, for example
    "our_loss".
    """
    names = ("net", "reference", "loss", "optimizer", "our_loss", "our_optimizer", "our_step")
    locations = {name: getattr(asked, name) for name in names}
    return {
        name: load_function(location, f"--{flag_name(name)}")
        for name, location in locations.items()
        if location
    }


def built(flag: str, function: str, build: Callable[[], Any], wanted: Any, expected: str) -> Any:
    """Call the user's function that builds a net, and check what it returns."""
    try:
        value = build()
    except Exception as error:
        fault = words_of(error)
        raise ValueError(
            f"{flag}: {function} fails{place_of(error)} ({fault}); correct this line"
        ) from error
    return returned(flag, function, value, wanted, expected)


def returned(flag: str, function: str, value: Any, wanted: Any, expected: str) -> Any:
    """Check that a function of the user returned an instance of `wanted`, and return `value`."""
    if isinstance(value, type) or not isinstance(value, wanted):
        got = (
            f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__}"
        )
        raise ValueError(f"{flag}: {function} returned {got}, but it must return {expected}")
    return value
