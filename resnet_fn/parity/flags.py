"""Define the flags that describe what both nets compute, and make a `Task` from parsed flags."""

import argparse
import dataclasses
from typing import Any

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.fields import flag_name
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import changed
from resnet_fn.parity.batches import make_batches, recipe_batches
from resnet_fn.parity.trace.plan import Task
from resnet_fn.runtime.user_files import imports_beside, load_function

# The settings of a recipe that `add_fields` turns into flags.
_STEP = (
    *(
        "momentum",
        "nesterov",
        "beta2",
        "epsilon",
        "weight_decay",
        "decay_all",
        "trust_coefficient",
        "clip_norm",
    ),
    *(
        "ema",
        "ema_every",
        "ema_start",
        "label_smoothing",
        "smoothing_over",
        "label_threshold",
        "precision",
    ),
    *(
        "mixup",
        "cutmix",
        "mix_switch",
        "repeats",
        "stem",
        "norm",
        "initialisation",
        "zero_init_residual",
    ),
    *(
        "schedule",
        "min_learning_rate",
        "warmup_epochs",
        "milestones",
        "milestone_factor",
        "epochs",
        "loss_scale",
    ),
)
_RECIPE = "digits"
_CHANNELS_AND_CLASSES = {"digits": (1, 10), "cifar10": (3, 10), "cifar100": (3, 100)}
_OTHER = (3, 1000)
_OWN_NET = (3, 10, 32)  # channels, classes and height of the images for a user's net
_GENTLE = 1e-3  # the learning rate for an optimizer that is not the recipe's


def add_task_flags(parser: cli.Parser) -> None:
    """Add the flags that `task_of` reads. The help shows the values of the default recipe."""
    recipe = recipes.recipe(_RECIPE)
    group = parser.add_argument_group("the task")
    channels, classes = _CHANNELS_AND_CLASSES.get(recipe.dataset, _OTHER)
    names, whose = ", ".join(recipes.RECIPES), "whose values are the defaults in this help"
    group.add_argument(
        "--recipe", metavar="NAME", help=f"a file, or one of {names}; default {_RECIPE}, {whose}"
    )
    batches = (
        "a function that returns a list with one pair (inputs, labels) for each update: "
        "NumPy arrays [n, …],"
    )
    batches += " or tuples or dicts of arrays; default random images"
    group.add_argument("--inputs", metavar="FILE:FUNCTION", help=batches)
    own = "with --net or --reference"
    numbers: dict[str, tuple[Any, str]] = {
        "steps": (5, "number of updates to compare"),
        "batch-size": (4, "number of samples in an update"),
        "image-size": (f"{recipe.image_size}, or {_OWN_NET[2]} {own}", "height and width [pixels]"),
        "in-channels": (f"{channels}, or {_OWN_NET[0]} {own}", "number of image channels"),
        "num-classes": (f"{classes}, or {_OWN_NET[1]} {own}", "number of classes"),
        "accumulate": (1, "number of micro-batches in an update"),
        "seed": (0, "seed of weights, statistics and images"),
    }
    images = parser.add_argument_group("random images, without --inputs")
    for name, (default, meaning) in numbers.items():
        where = images if name.endswith(("size", "channels", "classes")) else group
        where.add_argument(f"--{name}", type=int, metavar="N", help=f"{meaning}; default {default}")
    rate = (
        f"largest rate; default the recipe's, scaled with the batch size; {_GENTLE:g} for "
        "another --optimizer NAME"
    )
    group.add_argument("--learning-rate", type=float, metavar="X", help=rate)
    fields = {field.name: field.metadata for field in dataclasses.fields(Recipe)}
    functions = {
        "optimizer": "takes the torch module and returns an optimizer",
        "loss": "takes (outputs, labels)",
    }
    for name, meaning in functions.items():
        choices = f"{', '.join(fields[name]['choices'])}, or FILE:FUNCTION that {meaning}"
        group.add_argument(
            f"--{name}", metavar="NAME", help=f"{choices}; default {getattr(recipe, name)}"
        )
    cli.add_fields(parser, recipe, skip=[name for name in fields if name not in _STEP])


def task_flags_in(parsed: argparse.Namespace) -> list[str]:
    """Return the task flags that the user has set, except a --loss or --optimizer that names a
    function.
    """
    given = {
        name: getattr(parsed, name)
        for name in ("recipe", "inputs", "steps", "in_channels", "num_classes")
    }
    given |= {"accumulate": parsed.accumulate, **cli.settings_in(parsed, Recipe)}
    own = own_functions(parsed)
    return [
        f"--{flag_name(name)}"
        for name, value in given.items()
        if value is not None and name not in own
    ]


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
        (_GENTLE if other else recipe.learning_rate * scale)
        if learning_rate is None
        else learning_rate
    )
    least = min(recipe.min_learning_rate * scale, rate)
    scaled = {"batch_size": batch_size, "learning_rate": rate, "min_learning_rate": least}
    return changed(recipe, **{**scaled, **changes})


def task_of(parsed: argparse.Namespace) -> Task:
    """Make the `Task` (the updates that both nets make) that the flags describe."""
    of_images = ("steps", "batch_size", "image_size", "in_channels", "num_classes")
    given = {
        name: value
        for name in (*of_images, "accumulate")
        if (value := getattr(parsed, name)) is not None
    }
    small = [
        f"--{flag_name(name)}: {value} is too small; give 1 or more"
        for name, value in given.items()
        if value < 1
    ]
    cli.raise_usage_errors(*((True, words) for words in small))
    if parsed.inputs and (name := next((name for name in of_images if name in given), None)):
        raise cli.UsageError(
            f"--{flag_name(name)}: --inputs already defines the batches; leave out one of the flags"
        )
    own = own_functions(parsed)
    allowed = {*_STEP, "loss", "optimizer"} - {*own}
    settings = cli.settings_in(parsed, Recipe).items()
    changes = {name: value for name, value in settings if name in allowed and value is not None}
    with cli.usage_errors():
        named = recipes.load_recipe(parsed.recipe or _RECIPE).complete().make(Recipe)
        size, place = parsed.batch_size or 4, parsed.inputs
        recipe = ladder_recipe(named, size, parsed.learning_rate, changes)
        if place:
            make = load_function(place, "--inputs")
            with imports_beside(place):
                made = make()
            batches = list(
                returned("--inputs", place, made, list | tuple, "a list of (inputs, labels)")
            )
        else:
            channels, classes, pixels = image_shape(parsed, named)
            made = make_batches(
                parsed.steps or 5, size, channels, pixels, classes, parsed.seed or 0
            )
            batches = recipe_batches(recipe, made, classes, parsed.seed or 0)
        return Task(
            recipe,
            batches,
            parsed.accumulate or 1,
            parsed.seed or 0,
            "loss" in own,
            "optimizer" in own,
        )


def image_shape(parsed: argparse.Namespace, recipe: Recipe) -> tuple[int, int, int]:
    """Return the channels, classes and height of the random images, from the flags or from
    defaults.
    """
    channels, classes = _CHANNELS_AND_CLASSES.get(recipe.dataset, _OTHER)
    usual = _OWN_NET if parsed.net or parsed.reference else (channels, classes, recipe.image_size)
    return (
        parsed.in_channels or usual[0],
        parsed.num_classes or usual[1],
        parsed.image_size or usual[2],
    )


def net_arguments(task: Task, classes: int) -> dict[str, Any]:
    """Return keyword arguments for building a net of this package that fits the task."""
    images = task.batches[0][0]
    if not (hasattr(images, "ndim") and images.ndim == 4):
        raise ValueError(
            "model: the net takes images [n, C, H, W]; for other inputs, give --net and --reference"
        )
    shape = {"num_classes": classes, "in_channels": images.shape[1], "image_size": images.shape[2]}
    return {**shape, "stem": task.recipe.stem, "norm": task.recipe.norm}


def own_functions(parsed: argparse.Namespace) -> list[str]:
    """Return "loss" if --loss names a function of the user, and "optimizer" if --optimizer does."""
    given = {name: getattr(parsed, name, None) or "" for name in ("loss", "optimizer")}
    return [name for name, text in given.items() if ":" in text or text.endswith(".py")]


def load_functions(parsed: argparse.Namespace) -> dict[str, Any]:
    """Load the functions of the user that the flags name, and return them by flag, for example
    "our_loss".
    """
    names = ("net", "reference", *own_functions(parsed), "our_loss", "our_optimizer", "our_step")
    places = {name: getattr(parsed, name, None) for name in names}
    return {
        name: load_function(place, f"--{flag_name(name)}")
        for name, place in places.items()
        if place
    }


def returned(flag: str, function: str, value: Any, wanted: Any, expected: str) -> Any:
    """Check that a function of the user returned an instance of `wanted`, and return `value`."""
    if isinstance(value, type) or not isinstance(value, wanted):
        got = (
            f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__}"
        )
        raise ValueError(f"{flag}: {function} returned {got}, but it must return {expected}")
    return value
