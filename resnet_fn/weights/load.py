"""Weights of any project: read under our names, put into a net of ours, strictly or not at all, and converted."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.checkpoint.parameters import assign, check_finite
from resnet_fn.checkpoint.run_folder import find_checkpoint
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
class Source:
    """A weight file, read.

    Attributes:
        path: the file, or the checkpoint folder that was taken of a run folder.
        arrays: its arrays under our names.
        style: the style that the names were in; "own" where it is none of STYLES (`read_any_weights` only).
        warning: what that style hides; "" or one line.
        useless: whether that is so much that the weights belong to another function than our net.
        averaged: whether these are the moving average of the weights.
        model, update, classes: a checkpoint's model, updates and class names; empty where the source is none of ours.
    """

    path: Path
    arrays: Arrays
    style: str
    warning: str
    useless: bool
    model: str
    averaged: bool
    update: int
    classes: tuple[str, ...] = ()


def read_weights(file: File, which: str = "last") -> Source:
    """Read weights in any style and format: `.pth`, `.safetensors`, `.ckpt`, or a checkpoint or run folder of ours.

    Of a run folder, the "last" checkpoint that is intact, or the "best"; where the weights have a moving average, that
    is read. Optimizer state, step counts and BatchNorm counters are left out.

    Raises:
        ValueError: no such file, unknown names, or weights of a net that computes something else than ours.
    """
    source = read_any_weights(file, which)
    if source.useless:
        raise WeightsError(f"{source.path}: {source.warning}; give other weights")
    return source


def read_any_weights(file: File, which: str = "last") -> Source:
    """As `read_weights`, but to look at only: nothing is refused for what it computes or how its names are.

    Where the names are of no known style, `style` is "own" and the arrays are all there, under the file's own names.
    """
    path, model, averaged, update, classes = Path(file), "", False, 0, ()
    if path.is_dir():
        checkpoint = find_checkpoint(path, which)
        path, update = checkpoint.path, checkpoint.state.get("update", 0)
        model = checkpoint.state.get("recipe", {}).get("model", "")
        classes = tuple(checkpoint.state.get("dataset", {}).get("classes", ()))
        averages = averages_of(checkpoint.training)
        arrays, averaged = {**checkpoint.weights, **averages}, bool(averages)
    else:
        arrays = read_arrays(path)
        if which != "last":
            raise ValueError(f"which: {which!r} is of run folders, {path} is a file; leave it out")
    try:
        style = recognise_style(arrays)
    except ValueError as error:
        return Source(path, arrays, "own", str(error), True, model, averaged, update, classes)
    ours = {new: arrays[old] for old, new in to_ours(arrays, style).items()}
    warning, useless = differences(style, ours)
    return Source(path, ours, style, warning, useless, model, averaged, update, classes)


def load_weights(net: nn.Cell, file: File | Source, reset_head: bool = False, allow_non_finite: bool = False) -> None:
    """Put a file's weights and BatchNorm statistics into a net of ours, by exact name and shape.

    A difference between the file's net and ours that equal names hide is printed to stderr as a warning, or refused.

    Args:
        file: see `read_weights`; or what that has read.
        reset_head: keep the net's own last layer (`fc`); nothing else can be left out.
        allow_non_finite: take weights with NaN or infinity in them.

    Raises:
        WeightsError: lists what is missing, unexpected or of another shape. Nothing has been assigned then.
        ValueError: names what is not finite. Nothing has been assigned then.
    """
    _assign(net, file if isinstance(file, Source) else read_weights(file), reset_head, allow_non_finite)


def name_model(recipe: Recipe, source: Source | None) -> Recipe:
    """The recipe with the model that its weights are of, where it names none itself.

    Raises:
        ValueError: it has no weights either, or they are of no model.
    """
    if recipe.model:
        return recipe
    if source is None:
        raise ValueError("model: is told by the weights; give --weights FILE, or --model NAME")
    try:
        found = recognise_model(source.arrays, source.model)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {error}") from None
    stem = "" if found["stem"] == MODELS[found["name"]].stem else found["stem"]
    return dataclasses.replace(recipe, model=found["name"], stem=recipe.stem or stem, norm=found["norm"])


def read_start(recipe: Recipe) -> tuple[Recipe, Source | None]:
    """What a run starts with: its recipe, of which `name_model` has named the model, and its weights, if it has any.

    Raises:
        ValueError: as `read_weights` and `name_model`, with the setting's name.
    """
    if not recipe.weights:
        return name_model(recipe, None), None
    try:
        source = read_weights(recipe.weights, recipe.which)
        return name_model(recipe, source), source
    except ValueError as error:
        raise WeightsError(f"weights: {error}") from None


def start_from(net: nn.Cell, source: Source, recipe: Recipe, classes: Sequence[str]) -> str:
    """Put weights into a net that is about to be trained; its own last layer stays where they are for other classes.

    Args:
        recipe: the net's; with `reset_head` the last layer stays in any case.
        classes: those that it is to tell apart.

    Returns:
        A line on where the training starts.

    Raises:
        WeightsError: weights of another net, and how to get that net where it is one of ours.
    """
    other = other_classes(source, classes)
    try:
        _assign(net, source, recipe.reset_head or bool(other))
    except WeightsError as error:
        raise WeightsError(f"weights: {_other_net(net, source, recipe) or error}") from None
    kept = other or ("as --reset-head wants" if recipe.reset_head else "")
    return f"weights     {source.path}{f', {kept}: the last layer is new' if kept else ''}"


def convert_weights(
    source: File, target: File, to: str = "ours", model: str = "", allow_non_finite: bool = False, which: str = "last"
) -> dict[str, Any]:
    """Read weights in any style and write them in another; values keep every bit.

    The net is recognised from names and shapes, built, and compared with: nothing may be missing or unexpected.

    Args:
        source, which: see `read_weights`.
        target: a file ending in `.safetensors`, `.ckpt`, `.pth` or `.pt`.
        to: the names to write: "ours", "torchvision" (and timm), "mindcv" or "official".
        model: the model's name; "" recognises it.
        allow_non_finite: take weights with NaN or infinity in them.

    Returns:
        {"model": name, "path": what was read, "from": style, "to": style, "tensors": count, "warnings": texts}

    Raises:
        ValueError: what does not fit, with every name, or is not finite; or the target's net would compute something
            else.
    """
    if to not in STYLES:
        raise ValueError(f"to: {to!r} is unknown; {closest(to, STYLES)}")
    read = read_weights(source, which)
    try:
        found = recognise_model(read.arrays, model or read.model)
    except WeightsError as error:
        raise WeightsError(f"{source}: {error}" + ("" if model else "; name it with --model")) from None
    net = create_model(**found)
    names = [parameter.name for parameter in net.get_parameters()]
    check_fit({parameter.name: parameter.shape for parameter in net.get_parameters()}, read.arrays, str(source))
    if not allow_non_finite:
        check_finite(read.arrays, source)
    warning, useless = ("", False) if to == read.style else differences(to, read.arrays)
    if useless:
        raise WeightsError(f"to: {to!r}: {warning}")
    basic = is_basic(names)
    write_arrays(Path(target), {rename(name, to, basic): read.arrays[name] for name in names})
    unsure = "" if model or read.model else ambiguity(found["name"])
    warnings = [text for text in (read.warning, warning, unsure) if text]
    taken = {"model": found["name"], "path": read.path, "from": read.style}
    return {**taken, "to": to, "tensors": len(names), "warnings": warnings}


def _other_net(net: nn.Cell, source: Source, recipe: Recipe) -> str:
    """What other net of ours a source belongs to, and what to give; "" where it is the same but for some names."""
    own = recognise_model({parameter.name: parameter for parameter in net.get_parameters()}, recipe.model)
    try:
        found = recognise_model(source.arrays)
    except ValueError as error:  # a net of nobody's
        return f"{recipe.weights}: {error}"
    name = found["name"]
    if name not in (recipe.model, *same_parameters(recipe.model)):
        return f"{recipe.weights} holds a {name}, the net is a {recipe.model}; give --model {name}"
    for key in ("stem", "norm"):
        if found[key] != own[key]:
            return f"{recipe.weights} has the {key} {found[key]!r}, the net {own[key]!r}; give --{key} {found[key]}"
    theirs, ours = found["in_channels"], own["in_channels"]
    if theirs != ours:
        have = f"{theirs} channel{'s' * (theirs > 1)}, the data set's have {ours}"
        return f"{recipe.weights} is for images of {have}; give other weights"
    return ""


def other_classes(source: Source, classes: Sequence[str]) -> str:
    """Why a source's last layer is for other classes; "" where it is not, as far as it knows."""
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


def _assign(net: nn.Cell, source: Source, reset_head: bool, allow_non_finite: bool = False) -> None:
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


def _other_function(net: nn.Cell, model: str) -> str:
    """What to warn of where a net's parameters fit two models: the file is the other's, or does not say whose it is."""
    minus, plain = "genet50_minus", same_parameters("genet50_minus")[0]
    gated = any(isinstance(cell, GatherExcite) and cell.gather is None for _, cell in net.cells_and_names())
    if gated and model != minus:
        known = f"are {model}'s" if model else f"may be {plain}'s"
        return f"these weights {known}, which has the parameters of {minus} but no gates; here they get gates"
    if not gated and model == minus:
        return f"these weights are {minus}'s, which has the parameters of {plain} and gates; here they get none"
    return ""
