"""These functions read weights of this and other projects, load weights into a net, and convert
weight files.
"""

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.manifest import MANIFEST, WEIGHTS
from resnet_fn.checkpoint.parameters import (
    assign,
    check_finite,
    missing_buffers,
    saved_variables,
)
from resnet_fn.checkpoint.run_folder import find_checkpoint
from resnet_fn.checkpoint.tensor_file import Arrays
from resnet_fn.config.declaration import CUSTOM
from resnet_fn.config.draft import Source
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.printing import warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import draft_of
from resnet_fn.config.wording import counted, first_few
from resnet_fn.models import MODELS, create_model
from resnet_fn.models.attention import GatherExcite
from resnet_fn.models.parts import HEAD
from resnet_fn.models.untrained import names_with_infinity, saved_state
from resnet_fn.update.average import averages_of
from resnet_fn.weights.files import read_arrays, write_arrays
from resnet_fn.weights.names import STYLES, differences, is_basic, recognise_style, rename, to_ours
from resnet_fn.weights.origin import ANTIALIASED, find_origin, timm_name
from resnet_fn.weights.preparation import Preparation, of_run, take_over
from resnet_fn.weights.published import is_published_name, published_file, similar_names
from resnet_fn.weights.recognise import (
    WeightsError,
    ambiguity,
    check_fit,
    recognise_model,
    same_parameters,
)

File = str | Path
# `WeightFile.style` of names that no style in STYLES has, and of nets given to `fit`.
# `convert_weights` returns it, so it stays "own".
UNKNOWN_STYLE = "own"


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """The contents of a weight file. `model` and `update` are set only for checkpoints."""

    path: Path  # the file, or the checkpoint folder in a run folder
    arrays: Arrays  # the file's arrays under this package's names
    style: str  # naming style of the file, one of STYLES or UNKNOWN_STYLE
    warning: str  # how nets of that style differ from ours, or why the style is unknown, or ""
    useless: bool  # True if this package's nets cannot use the weights
    model: str = ""  # name of the model in a checkpoint's recipe, or "" for other files
    averaged: bool = False  # whether these are the moving average of the weights
    update: int = 0  # number of updates before a checkpoint was saved
    classes: tuple[str, ...] = ()  # class names of a checkpoint, or of a file that `export` wrote
    preparation: Preparation | None = None  # how images were prepared for the net, if it is known
    notes: tuple[str, ...] = ()  # lines to print below the path: what was renamed and left out


def read_weights(file: File, which: str = "last") -> WeightFile:
    """Read a weight file, a checkpoint folder, a run folder, or published weights by their name.

    `which` selects a run folder's "last" or "best" checkpoint. Moving averages, if any, replace a
    checkpoint's weights.
    """
    source = read_any_weights(file, which)
    if source.useless:
        raise WeightsError(f"{source.path}: {source.warning}; give other weights")
    return source


def read_any_weights(file: File, which: str = "last") -> WeightFile:
    """Read weights as `read_weights` does, even if this package's nets cannot use them.

    Unknown names are kept.
    """
    path = published_file(str(file)) if is_published_name(str(file)) else Path(file)
    if path.is_dir():
        return _read_checkpoint(find_checkpoint(path, which))
    if not path.exists() and (names := similar_names(str(file))):
        raise ValueError(f"{file} is not a file; for published weights, give {first_few(names)}")
    try:
        read = read_arrays(path)
    except MemoryError:
        raise ValueError(
            f"{path}: its arrays do not fit into memory; "
            "give other weights, or use a machine with more memory"
        ) from None
    if which != "last":
        raise ValueError(
            f"which: {which!r} is for run folders, but {path} is a file; leave out which={which!r}"
        )
    notes = [*read.notes]
    if path.name == WEIGHTS and path.with_name(MANIFEST).is_file():  # of a checkpoint
        notes.append(
            "these are bare weights; to read their moving average, if any, class names and "
            f"preparation, give {path.parent}"
        )
    about: dict[str, Any] = {"averaged": read.averaged}
    about["notes"] = tuple(f"            {note}" for note in notes)
    if read.fault:
        return WeightFile(path, read.arrays, UNKNOWN_STYLE, read.fault, True, **about)
    return _with_origin(_named_as_ours(path, read.arrays, **about))


def _read_checkpoint(checkpoint: Checkpoint) -> WeightFile:
    averages = averages_of(checkpoint.training)
    arrays = {**checkpoint.weights, **averages}
    state = checkpoint.state
    model = state["recipe"]["model"]
    classes = tuple(state["dataset"]["classes"])
    about = {"averaged": bool(averages), "update": state["update"], "classes": classes}
    about["preparation"] = of_run(str(checkpoint.path), state["dataset"], state["recipe"])
    if model == CUSTOM:  # may be a model of this package, which `recognise_model` finds out
        return WeightFile(checkpoint.path, arrays, UNKNOWN_STYLE, "", False, **about)
    return _named_as_ours(checkpoint.path, arrays, model=model, **about)


def _named_as_ours(path: Path, arrays: Arrays, **about: Any) -> WeightFile:
    """Return arrays under this package's names, or unchanged if the style is unknown."""
    try:
        style = recognise_style(arrays)
    except ValueError as error:
        return WeightFile(path, arrays, UNKNOWN_STYLE, str(error), True, **about)
    ours = {new: arrays[old] for old, new in to_ours(arrays, style).items()}
    warning, useless = differences(style, ours)
    return WeightFile(path, ours, style, warning, useless, **about)


def _with_origin(source: WeightFile) -> WeightFile:
    """Return the contents of a file, with what is known of its net besides the arrays."""
    try:
        net = recognise_model(source.arrays)
    except ValueError:
        net = {"name": "", "stem": ""}
    origin = find_origin(source.path, timm_name(net["name"], net["stem"]))
    warning, useless = source.warning, source.useless
    if source.style == "torchvision" and not useless:
        twins = "" if origin.is_named else ANTIALIASED.get((net["name"], net["stem"]), "")
        if twins and not warning:
            warning = (
                f"these arrays also fit timm's {twins}, which compute something else, and nothing "
                "names the net"
            )
        warning, useless = origin.difference or warning, bool(origin.difference)
    return dataclasses.replace(
        source,
        warning=warning,
        useless=useless,
        classes=origin.classes,
        preparation=origin.preparation,
        notes=(*source.notes, *origin.notes),
    )


def load_weights(
    net: nn.Cell, file: File | WeightFile, reset_head: bool = False, allow_non_finite: bool = False
) -> None:
    """Load weights, BatchNorm statistics and buffers from a file into a net, completely or not at
    all. Buffers that the file lacks keep their values.

    Prints a warning to stderr if `net` may give other outputs than the net that the weights were
    saved from.

    Args:
        net: Net of this package, or another net that `fit` trained.
        file: weight file (`.pth`, `.safetensors`, `.ckpt` …), checkpoint folder, run folder, result
            of `read_weights`, or the name of published weights, such as "torchvision:resnet50".
        reset_head: If True, the last layer `fc` of the net is not changed.
        allow_non_finite: If True, NaN and infinity are accepted.

    Raises:
        WeightsError: If an array is missing, unexpected or of another shape, or if our nets cannot
            use the weights.
        ValueError: If the file cannot be read, or if an array contains NaN or infinity. Infinity is
            accepted where the net has it and does not train, as in an attention mask.
    """
    source = file if isinstance(file, WeightFile) else read_weights(file)
    left_out = (f"{HEAD}.",) if reset_head else ()
    arrays = {name: array for name, array in source.arrays.items() if not name.startswith(left_out)}
    state = [variable for variable in saved_state(net) if not variable.name.startswith(left_out)]
    present = saved_variables(state, arrays)
    check_fit({variable.name: variable.shape for variable in present}, arrays, str(source.path))
    if not allow_non_finite:
        check_finite(arrays, source.path, names_with_infinity(net))
    warnings = (source.warning, _other_function(net, source.model), missing_buffers(state, arrays))
    for warning in filter(None, warnings):
        warn(f"{source.path}: {warning}")
    assign(present, arrays)


def name_model(recipe: Recipe, source: WeightFile | None) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe, and notes on settings that it loses.

    If the recipe has no model, take the model and a missing stem from the weights, and the norm
    unless a flag or keyword has one. What
    the user chose and the net does not suit is an error; what a recipe has is left out with a note.
    """
    if recipe.model:
        return recipe, ()
    if source is None:
        raise ValueError(
            "model: the recipe has neither a model nor weights; give --model NAME or --weights FILE"
            " (--weights torchvision:resnet50 shows where to get weights trained on ImageNet)"
        )
    try:
        model = recognise_model(source.arrays, source.model)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {error}") from None
    # In other projects' styles, only the plain net has these parameters.
    if source.style == "ours" and not source.model and (unsure := ambiguity(model["name"])):
        warn(f"{source.path}: {unsure}")
    stem = "" if model["stem"] == MODELS[model["name"]].stem else model["stem"]
    its = {"model": model["name"]}
    if not recipe.stem:
        its["stem"] = stem
    notes: tuple[str, ...] = ()
    if recipe.chosen.get("norm") is not Source.FLAG:
        its["norm"] = model["norm"]
        if "norm" in recipe.chosen and recipe.norm != model["norm"]:
            notes = (f"norm {model['norm']}, not {recipe.norm} (from {source.path})",)
    resolved = draft_of(recipe).complete({**recipe.chosen_values(), **its})
    return recipe.adapted(**its), (*notes, *resolved.drop_notes)


def read_start(recipe: Recipe) -> tuple[Recipe, WeightFile | None]:
    """Return the recipe with a model name and its weights' preparation of images, and the weights.

    Settings that the user chose stay. The weights are None if the recipe has no weights.
    """
    if not recipe.weights:
        return name_model(recipe, None)[0], None
    try:
        return suit_weights(recipe, read_weights(recipe.weights, recipe.which))
    except ValueError as error:
        raise WeightsError(f"weights: {error}") from None


def suit_weights(recipe: Recipe, source: WeightFile) -> tuple[Recipe, WeightFile]:
    """Return the recipe with the model and the preparation of images of its weights.

    Settings of the preparation that the user chose stay. The weights are returned with lines about
    the preparation among their notes.
    """
    recipe, lines = take_over(recipe, source.preparation)
    recipe, left_out = name_model(recipe, source)
    return recipe, dataclasses.replace(source, notes=(*source.notes, *lines, *left_out))


def start_from(
    net: nn.Cell,
    source: WeightFile,
    recipe: Recipe,
    classes: Sequence[str],
    demanded: Collection[str] = (),
) -> list[str]:
    """Load weights into a net before training, and return lines that describe the weights.

    The last layer of the net is not changed if the weights are for other classes, or if the recipe
    sets `reset_head`. If the weights replace all parameters, an `initialisation` raises ValueError
    if it is in `demanded`, the user's flags and keywords, and is a line otherwise.
    """
    new = other_classes(source, classes) or ("as --reset-head wants" if recipe.reset_head else "")
    is_usual = recipe.initialisation == Recipe.declarations["initialisation"].default
    useless = ""
    if not (is_usual or new):
        useless = "has no effect, because the weights replace all parameters"
    if useless and "initialisation" in demanded:
        raise ValueError(f"initialisation: {recipe.initialisation!r} {useless}; leave it out")
    try:
        load_weights(net, source, bool(new))
    except WeightsError as error:
        raise WeightsError(
            f"weights: {_difference(net, source, recipe.model, recipe.weights) or error}"
        ) from None
    if new:
        return describe_source(source, f"{new}: the last layer is new")
    unnamed = f"for {counted(len(classes), 'class', 'classes')} without names"
    known = "for the same classes" if source.classes else unnamed
    lines = describe_source(source, f"{known}: the last layer is kept")
    return [*lines, f"initialisation {recipe.initialisation} {useless}"] if useless else lines


def describe_source(source: WeightFile, head: str = "") -> list[str]:
    """Return a line with the weights' path, whether they are averaged, and `head`; then notes."""
    average = "the moving average of the weights" if source.averaged else ""
    first = ", ".join(filter(None, (f"weights     {source.path}", average, head)))
    return [first, *source.notes]


def convert_weights(
    source: File,
    target: File,
    to: str = "ours",
    model: str = "",
    allow_non_finite: bool = False,
    which: str = "last",
) -> dict[str, Any]:
    """Read weights in any known naming style, and write the same values under the names of the
    style `to`.

    If class names and the preparation of images are known, a safetensors file contains them, too.

    Args:
        source: Weight file, checkpoint folder or run folder, as in `load_weights`.
        target: File to write, which ends in `.safetensors`, `.ckpt`, `.pth` or `.pt`.
        to: Naming style to write, one of "ours", "torchvision" (also timm), "mindcv" and
            "official".
        model: Model name. If empty, the model is read from a checkpoint, or else recognised from
            names and shapes.
        allow_non_finite: If True, NaN and infinity are accepted.
        which: Checkpoint of a run folder, "last" or "best".

    Returns:
        {"model": name, "path": path that was read, "from": style, "to": style, "tensors": count,
        "notes": lines about what was renamed or left out, "warnings": texts}

    Raises:
        ValueError: If a file cannot be read or written, `to` or `model` is unknown, the model is
            not recognised, an array does not fit or is not finite, or nets of the style `to` or of
            this package cannot use the weights.
    """
    if to not in STYLES:
        raise ValueError(f"to: {to!r} is unknown; {suggest_name(to, STYLES)}")
    read = read_weights(source, which)
    try:
        net_options = recognise_model(read.arrays, model or read.model)
    except WeightsError as error:
        raise WeightsError(
            f"{source}: {error}" + ("" if model else "; name the model with --model")
        ) from None
    shapes = {
        parameter.name: parameter.shape
        for parameter in create_model(**net_options).get_parameters()
    }
    check_fit(shapes, read.arrays, str(source))
    if not allow_non_finite:
        check_finite(read.arrays, source)
    warning, useless = ("", False) if to == read.style else differences(to, read.arrays)
    if useless:
        raise WeightsError(f"to: nets of the style {to!r} cannot use these weights: {warning}")
    preprocessing = read.preparation.as_spec() if read.preparation else {}
    known = {"classes": read.classes, "preprocessing": preprocessing}
    metadata = {name: json.dumps(value) for name, value in known.items() if value}
    renamed = {rename(name, to, is_basic(shapes)): read.arrays[name] for name in shapes}
    write_arrays(Path(target), renamed, metadata)
    unsure = "" if model or read.model else ambiguity(net_options["name"])
    warnings = [text for text in (read.warning, warning, unsure) if text]
    return {
        "model": net_options["name"],
        "path": read.path,
        "from": read.style,
        "to": to,
        "tensors": len(shapes),
        "notes": read.notes,
        "warnings": warnings,
    }


def _difference(net: nn.Cell, source: WeightFile, model: str, path: str) -> str:
    """Return an error if the weights' model is unknown or its parameters, stem or norm do not fit
    `net`, else "".
    """
    ours = recognise_model({parameter.name: parameter for parameter in net.get_parameters()}, model)
    try:
        theirs = recognise_model(source.arrays)
    except ValueError as error:  # no net of ours
        return f"{path}: {error}"
    name = theirs["name"]
    if name not in (model, *same_parameters(model)):
        return f"{path} contains weights of {name}, but the net is {model}; give --model {name}"
    for key in ("stem", "norm"):
        if theirs[key] != ours[key]:
            return (
                f"{path} has the {key} {theirs[key]!r}, but the net has {ours[key]!r}; give "
                f"--{key} {theirs[key]}"
            )
    channels = theirs["in_channels"]
    if channels != ours["in_channels"]:
        return (
            f"{path} is for images of {channels} channel{'s' * (channels > 1)}, but the data set "
            f"has {ours['in_channels']}; give other weights"
        )
    return ""


def other_classes(source: WeightFile, classes: Sequence[str]) -> str:
    """Describe how the classes of the weights differ from `classes`, or return "" if no difference
    is known.
    """
    layers = [name for name in source.arrays if name.startswith(f"{HEAD}.")]
    if f"{HEAD}.weight" not in layers:
        parts = f"with a last layer of other parts ({first_few(layers)})"
        return parts if layers else "without a last layer"
    count = len(source.arrays[f"{HEAD}.weight"])
    if count != len(classes):
        return f"for {count:,} classes, not {len(classes):,}"
    if not source.classes or source.classes == tuple(classes):
        return ""
    if set(source.classes) == set(classes):
        return "for these classes in another order"
    return f"for other classes ({first_few(source.classes)})"


def _other_function(net: nn.Cell, model: str) -> str:
    """Return a warning if only one of `net` and `model` (the model of the weights) is
    genet50_minus, else "".
    """
    minus = "genet50_minus"
    gated = any(
        isinstance(cell, GatherExcite) and not list(cell.get_parameters())
        for _, cell in net.cells_and_names()
    )
    if gated == (model == minus):
        return ""
    origin = f"are of {model}" if model else f"may be of {same_parameters(minus)[0]}"
    fault = f"has the gates of {minus}" if gated else "lacks the gates"
    return f"these weights {origin}, but this net {fault}, which have no parameters"
