"""Define the flags of the ladder's commands, and turn parsed flags into `Asked`."""

import argparse
import dataclasses
from typing import Any

from resnet_fn import recipes
from resnet_fn.config import cli, shared_flags
from resnet_fn.config.optimizers import OPTIMIZER_SETTINGS
from resnet_fn.config.output_paths import file_to_write, folder_to_write
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.setting_names import flag_name
from resnet_fn.parity.asked import Asked
from resnet_fn.parity.inputs.stored import line_of
from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.tasks import CHANNELS_AND_CLASSES, GENTLE, OTHER, OWN_NET, RECIPE

# The settings of a recipe that `add_setting_flags` turns into flags.
_STEP = (
    *OPTIMIZER_SETTINGS,
    "momentum",
    "weight_decay",
    "decay_all",
    "clip_norm",
    "ema",
    "ema_every",
    "ema_start",
    "label_smoothing",
    "smoothing_over",
    "label_threshold",
    "precision",
    "mixup",
    "cutmix",
    "mix_switch",
    "repeats",
    "stem",
    "norm",
    "initialisation",
    "zero_init_residual",
    "schedule",
    "min_learning_rate",
    "warmup_epochs",
    "milestones",
    "milestone_factor",
    "epochs",
    "loss_scale",
)
_FILE, _SWITCH = "FILE:FUNCTION", {"action": "store_true"}
_MODE = {"choices": ("graph", "pynative"), "default": "graph"}
_FOLDER = {"metavar": "DIR", "type": folder_to_write}
_NEW = {"metavar": "FOLDER"}
_JSON = {"metavar": "FILE", "type": file_to_write}
_LAYERS = {"choices": ("all", "none"), "default": "all"}
_PROBES = {"choices": ("all", "none")}
_FLAGS: dict[str, tuple[str | dict[str, Any], str]] = {
    "model": ("NAME", "a net of this package"),
    "net": (_FILE, "a function that returns a MindSpore Cell"),
    "reference": (_FILE, "a function that returns a torch Module"),
    "our-loss": (_FILE, "a function that computes MindSpore's loss of (outputs, labels)"),
    "our-optimizer": (
        _FILE,
        "a function that takes the net and returns an optimizer of MindSpore or of this package",
    ),
    "our-step": (_FILE, "a function like `make_train_step` that returns your own step"),
    "map": (
        "FILE",
        "a JSON file that corrects which names of both nets are paired (form: docs/parity.md)",
    ),
    "like": ("TRACE", "use the task and the weights of this trace; needs --net"),
    "quick": (
        _SWITCH,
        "compare only the batches, without probes (changed inputs) and without a search for causes",
    ),
    "probes": (_PROBES, "none: record no probes (outputs for changed inputs)"),
    "no-initialisation": (
        _SWITCH,
        "do not compare initial weights (for nets that load trained weights)",
    ),
    "strict": (
        _SWITCH,
        "exit 1 also if a probe differs, or if a difference within tolerance exceeds rounding",
    ),
    "inputs-verdict": (
        "FILE",
        "the JSON file of `parity inputs`, so that the result includes how inputs were compared",
    ),
    "mode": (_MODE, "graph compiles an update, pynative compiles nothing; default graph"),
    "json": (_JSON, "write the results of every stage, array and layer as JSON into this file"),
    "report": (
        _FOLDER,
        "write parity.html with verdict, stages, losses and each layer's error into this folder",
    ),
    "out": (_NEW, "a new folder for the trace, or with --small a file, such as trace.npz"),
    "small": (
        _SWITCH,
        "write one file of some KB, to commit: a few numbers of each array, and weights and images "
        "that a seed draws",
    ),
    "layers": (
        _LAYERS,
        "none: record no layers; then no layer is compared, and both nets must name parameters "
        "alike",
    ),
}
SEARCHED: dict[str, Any] = {
    "dest": "searched",
    "metavar": _FILE,
    "help": "search for causes in the recorded torch module, from its unchanged file; needs "
    "PyTorch",
}
COMPARED = ("map", "no-initialisation", "strict", "quick", "inputs-verdict")
WRITTEN = ("json", "report")


def add(group: argparse._ArgumentGroup, *names: str, **more: str) -> None:
    """Add the flags with these names to a group.

    `more` maps a flag to text that is added to the flag's help.
    """
    for name in names:
        options, meaning = _FLAGS[name]
        options = {"metavar": options} if isinstance(options, str) else options
        group.add_argument(f"--{name}", help=meaning + more.get(name, ""), **options)


def add_task_flags(parser: cli.Parser) -> None:
    """Add the flags that `task_of` reads. The help shows the values of the default recipe."""
    recipe = recipes.recipe(RECIPE)
    group = parser.add_argument_group("the task")
    channels, classes = CHANNELS_AND_CLASSES.get(recipe.dataset, OTHER)
    names, whose = ", ".join(recipes.RECIPES), "whose values are the defaults in this help"
    group.add_argument(
        "--recipe", metavar="NAME", help=f"a file, or one of {names}; default {RECIPE}, {whose}"
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
        "image-size": (f"{recipe.image_size}, or {OWN_NET[2]} {own}", "height and width [pixels]"),
        "in-channels": (f"{channels}, or {OWN_NET[0]} {own}", "number of image channels"),
        "num-classes": (f"{classes}, or {OWN_NET[1]} {own}", "number of classes"),
        "accumulate": (1, "number of micro-batches in an update"),
        "seed": (0, "seed of weights, statistics and images"),
    }
    images = parser.add_argument_group("random images, without --inputs")
    for name, (default, meaning) in numbers.items():
        where = images if name.endswith(("size", "channels", "classes")) else group
        where.add_argument(f"--{name}", type=int, metavar="N", help=f"{meaning}; default {default}")
    rate = (
        f"largest rate; default the recipe's, scaled with the batch size; {GENTLE:g} for "
        "another --optimizer NAME"
    )
    group.add_argument("--learning-rate", type=float, metavar="X", help=rate)
    declared = Recipe.declarations
    functions = {
        "optimizer": "takes the torch module and returns an optimizer",
        "loss": "takes (outputs, labels)",
    }
    for name, meaning in functions.items():
        choices = f"{', '.join(declared[name].choices)}, or FILE:FUNCTION that {meaning}"
        group.add_argument(
            f"--{name}", metavar="NAME", help=f"{choices}; default {getattr(recipe, name)}"
        )
    shared_flags.add_setting_flags(
        parser, recipe, skip=[name for name in declared if name not in _STEP]
    )


def task_flags_in(parsed: argparse.Namespace) -> list[str]:
    """Return the task flags that the user has set, except a --loss or --optimizer that names a
    function.
    """
    values = {
        name: getattr(parsed, name)
        for name in ("recipe", "inputs", "steps", "in_channels", "num_classes")
    }
    values |= {"accumulate": parsed.accumulate, **shared_flags.settings_in(parsed, Recipe)}
    own = own_functions(parsed)
    return [
        f"--{flag_name(name)}"
        for name, value in values.items()
        if value is not None and name not in own
    ]


def own_functions(parsed: argparse.Namespace) -> list[str]:
    """Return "loss" if --loss names a function of the user, and "optimizer" if --optimizer does."""
    values = {name: getattr(parsed, name, None) or "" for name in ("loss", "optimizer")}
    return [name for name, text in values.items() if ":" in text or text.endswith(".py")]


def asked_in(parsed: argparse.Namespace) -> Asked:
    """Return the parsed flags as plain values, with the content of the files that they name."""
    custom = own_functions(parsed)
    names = {field.name for field in dataclasses.fields(Asked)} - {"settings", "corrections"}
    values = {name: value for name, value in vars(parsed).items() if name in names}
    values |= {name: None for name in ("loss", "optimizer") if name not in custom}
    allowed = {*_STEP, "loss", "optimizer"} - {*custom}
    settings = {
        name: value
        for name, value in shared_flags.settings_in(parsed, Recipe).items()
        if name in allowed and value is not None
    }
    with cli.as_usage_error():
        corrections = read_map(parsed.map) if getattr(parsed, "map", None) else None
        prepared = getattr(parsed, "inputs_verdict", None)
        inputs_verdict = line_of(prepared) if prepared else None
    left_out = getattr(parsed, "no_initialisation", False)
    values |= {"settings": settings, "corrections": corrections, "initialisation": not left_out}
    values |= {"inputs_verdict": inputs_verdict}
    return Asked(**{name: value for name, value in values.items() if value is not None})
