"""Weights of any project are read, renamed to this package's names, loaded into a net, or converted."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.checkpoint.parameters import assign, check_finite
from resnet_fn.checkpoint.run_folder import find_checkpoint
from resnet_fn.config.fields import OWN
from resnet_fn.config.hints import closest, few
from resnet_fn.config.recipe import Recipe
from resnet_fn.models import MODELS, create_model
from resnet_fn.models.attention import GatherExcite
from resnet_fn.update.average import averages_of
from resnet_fn.weights.files import Arrays, read_arrays, write_arrays
from resnet_fn.weights.names import STYLES, differences, is_basic, recognise_style, rename, to_ours
from resnet_fn.weights.recognise import HEAD, WeightsError, ambiguity, check_fit, recognise_model, same_parameters

File = str | Path


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """Holds the contents of a weight file; `model`, `update` and `classes` are empty for files of other projects."""

    path: Path  # the file, or the checkpoint folder in a run folder
    arrays: Arrays  # the file's arrays under this package's names
    style: str  # style of the names in the file; "own" if it is none of STYLES
    warning: str  # a line that describes how a net of that style computes differently from ours; "" if it does not
    useless: bool  # whether it differs so much that our net cannot use the weights
    model: str  # the model's name in a checkpoint's recipe; "" for other files
    averaged: bool  # whether these are the moving average of the weights
    update: int  # number of updates that trained a checkpoint
    classes: tuple[str, ...] = ()  # a checkpoint's class names


def read_weights(file: File, which: str = "last") -> WeightFile:
    """Read weights in any style and format: `.pth`, `.safetensors`, `.ckpt`, or a checkpoint or run folder of ours.

    `which` selects a run folder's "last" or "best" intact checkpoint. Averaged weights are preferred. A ValueError if
    the file does not exist, has unknown names (not a run of `fit`), or is for a net that computes something else.
    """
    source = read_any_weights(file, which)
    if source.useless:
        raise WeightsError(f"{source.path}: {source.warning}; give other weights")
    return source


def read_any_weights(file: File, which: str = "last") -> WeightFile:
    """Read weights as `read_weights` does, but reject none; those of an unknown style ("own") keep their names."""
    path, model, averaged, update, classes = Path(file), "", False, 0, ()
    if path.is_dir():
        checkpoint = find_checkpoint(path, which)
        path, update = checkpoint.path, checkpoint.state["update"]
        model, classes = checkpoint.state["recipe"]["model"], tuple(checkpoint.state["dataset"]["classes"])
        averages = averages_of(checkpoint.training)
        arrays, averaged = {**checkpoint.weights, **averages}, bool(averages)
        if model == OWN:  # perhaps one of ours; `recognise_model` can find out
            return WeightFile(path, arrays, "own", "", False, "", averaged, update, classes)
    else:
        arrays = read_arrays(path)
        if which != "last":
            raise ValueError(f"which: {which!r} is for run folders, {path} is a file; leave it out")
    try:
        style = recognise_style(arrays)
    except ValueError as error:
        return WeightFile(path, arrays, "own", str(error), True, model, averaged, update, classes)
    ours = {new: arrays[old] for old, new in to_ours(arrays, style).items()}
    warning, useless = differences(style, ours)
    return WeightFile(path, ours, style, warning, useless, model, averaged, update, classes)


def load_weights(
    net: nn.Cell, file: File | WeightFile, reset_head: bool = False, allow_non_finite: bool = False
) -> None:
    """Load a file's weights and BatchNorm statistics into a net, by exact name and shape, or nothing at all.

    The net is one of ours, or a caller's own that `fit` trained. If the file's net has our names but differs from our
    net, this is rejected, or a warning on stderr.

    Args:
        file: see `read_weights`; or its result.
        reset_head: keep the net's own last layer (`fc`) instead of the file's.
        allow_non_finite: accept NaN and infinity.

    Raises:
        WeightsError: lists the names that are missing, unexpected or of another shape.
        ValueError: names the arrays that are not finite.
    """
    source = file if isinstance(file, WeightFile) else read_weights(file)
    kept = HEAD if reset_head else ()
    parameters = {parameter.name: parameter for parameter in net.get_parameters() if parameter.name not in kept}
    arrays = {name: array for name, array in source.arrays.items() if name not in kept}
    check_fit({name: parameter.shape for name, parameter in parameters.items()}, arrays, str(source.path))
    if not allow_non_finite:
        check_finite(arrays, source.path)
    for warning in (source.warning, _other_function(net, source.model)):
        if warning:
            print(f"warning: {source.path}: {warning}", file=sys.stderr, flush=True)
    assign(tuple(parameters.values()), arrays)


def name_model(recipe: Recipe, source: WeightFile | None) -> Recipe:
    """Return the recipe; if it names no model, with the model of its weights; a ValueError if they fit none either."""
    if recipe.model:
        return recipe
    if source is None:
        raise ValueError("model: no model and no weights to recognise it from; give --weights FILE, or --model NAME")
    try:
        model = recognise_model(source.arrays, source.model)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {error}") from None
    # Of other projects' names only the plain net has these.
    if source.style == "ours" and not source.model and (unsure := ambiguity(model["name"])):
        print(f"warning: {source.path}: {unsure}", file=sys.stderr, flush=True)
    stem = "" if model["stem"] == MODELS[model["name"]].stem else model["stem"]
    return dataclasses.replace(recipe, model=model["name"], stem=recipe.stem or stem, norm=model["norm"])


def read_start(recipe: Recipe) -> tuple[Recipe, WeightFile | None]:
    """Return the recipe, with its model named (`name_model`), and the weights that the run starts from, or None."""
    if not recipe.weights:
        return name_model(recipe, None), None
    try:
        source = read_weights(recipe.weights, recipe.which)
        return name_model(recipe, source), source
    except ValueError as error:
        raise WeightsError(f"weights: {error}") from None


def start_from(net: nn.Cell, source: WeightFile, recipe: Recipe, classes: Sequence[str]) -> str:
    """Load weights into a net that is about to be trained; return a line that names the weights.

    The net keeps its own last layer if the weights' is for other classes, and with `reset_head`. If the weights are
    of another net, a WeightsError names the setting that builds it.
    """
    other = other_classes(source, classes)
    try:
        load_weights(net, source, recipe.reset_head or bool(other))
    except WeightsError as error:
        raise WeightsError(f"weights: {_other_net(net, source, recipe.model, recipe.weights) or error}") from None
    kept = other or ("as --reset-head wants" if recipe.reset_head else "")
    return f"weights     {source.path}{f', {kept}: the last layer is new' if kept else ''}"


def convert_weights(
    source: File, target: File, to: str = "ours", model: str = "", allow_non_finite: bool = False, which: str = "last"
) -> dict[str, Any]:
    """Read weights in any style and write them in another; values keep every bit.

    The net is recognised from names and shapes and built: nothing may be missing or unexpected.

    Args:
        source, which: see `read_weights`.
        target: a file ending in `.safetensors`, `.ckpt`, `.pth` or `.pt`.
        to: the names to write: "ours", "torchvision" (and timm), "mindcv" or "official".
        model: the model's name; "" recognises it.
        allow_non_finite: accept NaN and infinity.

    Returns:
        {"model": name, "path": source's path, "from": style, "to": style, "tensors": count, "warnings": texts}

    Raises:
        ValueError: names of arrays that do not fit or are not finite; or the target's net would compute something else.
    """
    if to not in STYLES:
        raise ValueError(f"to: {to!r} is unknown; {closest(to, STYLES)}")
    read = read_weights(source, which)
    try:
        net_options = recognise_model(read.arrays, model or read.model)
    except WeightsError as error:
        raise WeightsError(f"{source}: {error}" + ("" if model else "; name it with --model")) from None
    shapes = {parameter.name: parameter.shape for parameter in create_model(**net_options).get_parameters()}
    check_fit(shapes, read.arrays, str(source))
    if not allow_non_finite:
        check_finite(read.arrays, source)
    warning, useless = ("", False) if to == read.style else differences(to, read.arrays)
    if useless:
        raise WeightsError(f"to: {to!r}: {warning}")
    write_arrays(Path(target), {rename(name, to, is_basic(shapes)): read.arrays[name] for name in shapes})
    unsure = "" if model or read.model else ambiguity(net_options["name"])
    warnings = [text for text in (read.warning, warning, unsure) if text]
    styles = {"from": read.style, "to": to}
    return {"model": net_options["name"], "path": read.path, **styles, "tensors": len(shapes), "warnings": warnings}


def _other_net(net: nn.Cell, source: WeightFile, model: str, given: str) -> str:
    """Describe how the net of weights, `given` so, differs from our `model`, with the fix; "" if only names differ."""
    ours = recognise_model({parameter.name: parameter for parameter in net.get_parameters()}, model)
    try:
        theirs = recognise_model(source.arrays)
    except ValueError as error:  # no net of ours
        return f"{given}: {error}"
    name = theirs["name"]
    if name not in (model, *same_parameters(model)):
        return f"{given} holds a {name}, the net is a {model}; give --model {name}"
    for key in ("stem", "norm"):
        if theirs[key] != ours[key]:
            return f"{given} has the {key} {theirs[key]!r}, the net {ours[key]!r}; give --{key} {theirs[key]}"
    channels = theirs["in_channels"]
    if channels != ours["in_channels"]:
        have = f"{channels} channel{'s' * (channels > 1)}, the data set's have {ours['in_channels']}"
        return f"{given} is for images of {have}; give other weights"
    return ""


def other_classes(source: WeightFile, classes: Sequence[str]) -> str:
    """Return how the classes of a weight file's last layer differ from `classes`; "" if they do not or are unknown."""
    if HEAD[0] not in source.arrays:
        return "without a last layer"
    count = len(source.arrays[HEAD[0]])
    if count != len(classes):
        return f"for {count:,} classes, not {len(classes):,}"
    if not source.classes or source.classes == tuple(classes):
        return ""
    if set(source.classes) == set(classes):
        return "for these classes in another order"
    return f"for other classes ({few(source.classes)})"


def _other_function(net: nn.Cell, model: str) -> str:
    """Return a warning if the parameters fit two models and the file does not name this one."""
    minus, plain = "genet50_minus", same_parameters("genet50_minus")[0]
    gates = (cell for _, cell in net.cells_and_names() if isinstance(cell, GatherExcite))
    gated = any(not list(cell.get_parameters()) for cell in gates)
    if gated and model != minus:
        known = f"are {model}'s" if model else f"may be {plain}'s"
        return f"these weights {known}, which has the parameters of {minus} but no gates; this net has gates"
    if not gated and model == minus:
        return f"these weights are {minus}'s, which has the parameters of {plain} and gates; this net has none"
    return ""
