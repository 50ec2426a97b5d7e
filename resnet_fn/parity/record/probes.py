"""Run the net, and each layer alone, on probes: other inputs than the batches."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.layers import keeping_inputs
from resnet_fn.parity.record.variations import variations
from resnet_fn.parity.trace.data import Probe, Probes
from resnet_fn.parity.trace.difference import norm, relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.probes import (
    FACTORS,
    FEWER_IDS,
    IDS,
    IN_TRAINING,
    MASKS,
    MORE,
    NET,
    SIZES,
    TOO_LARGE,
    AskedProbes,
    is_mask,
)
from resnet_fn.parity.trace.tree import Arrays, Tree, leaves, map_tree, map_values, named_leaves

_HELD = 1 << 28  # the most numbers in the probes of all layers of one side

# the most numbers in the batch of images from which layers get their inputs
_LARGEST_BATCH = 1 << 18

# probes of the net that multiply its inputs
_FACTORS = {
    "0·x": np.float32(0.0),
    "0.01·x": np.float32(0.01),
    "−x": np.float32(-1.0),
    "10·x": np.float32(10.0),
}

_LARGEST = 1 << 22  # a larger embedding table is not probed with every id

Change = Callable[[np.ndarray], np.ndarray]

NamedChange = Callable[[str, np.ndarray], np.ndarray]  # gets the name of an input, too

Shape = tuple[int, ...]


class Caller(NamedTuple):
    """The functions with which one framework runs a net and its layers."""

    array: Callable[[Any], np.ndarray]  # the array of a tensor
    tensor: Callable[[np.ndarray], Any]
    outputs: Callable[[Any], Arrays]  # a net's outputs as arrays by name
    calling: Callable[[Tree], Any]  # returns the context manager for a call on the given input
    absent: tuple[type[Exception], ...] = (MemoryError,)  # errors for which a probe is left out


def compute_probes(
    layers: Iterable[tuple[str, Any]],
    run: Callable[[Tree], Any],
    train: Callable[[Tree], Any],
    inputs: Tree,
    executions: Sequence[Layer],
    caller: Caller,
    asked: AskedProbes | None = None,
) -> Probes:
    """Run the net and each of its layers on probes (changed inputs), and return the results.

    `run` runs the net on inputs in evaluation mode, `train` in training mode. `layers` has pairs
    (path, layer), and `executions` has their recorded executions. If `asked` is None, all probes
    are computed.
    """

    some = _few_samples(inputs, 2)
    of_net: dict[str, tuple[Tree, Callable[[], Arrays]]] = {}
    changes = _net_changes(some, _tables(some, executions))
    for title, changed in changes.items():
        of_net[title] = changed, partial(_compute, run, changed, caller)
    if MORE in changes:  # one sample alone has no batch statistics
        changed = changes[MORE]
        of_net[MORE + IN_TRAINING] = changed, partial(_compute, train, changed, caller)
    for title, variation in variations(some).items():
        for end, function in (("", run), (IN_TRAINING, train)):
            of_net[title + end] = (
                variation.inputs,
                partial(_compute, function, variation.inputs, caller, variation.of_outputs),
            )
    probes: Probes = {NET: {}}
    for title, (changed, compute) in of_net.items():
        if asked is None or title in asked.get(NET, ()):
            named = named_leaves(changed, "")
            norms = [norm(leaf) for leaf in named.values()]
            probe = _probe(compute, changed, caller, norms)
            if probe:
                probes[NET][title] = probe
    chosen = []
    for name, layer in layers:
        if asked is None or name in asked:
            chosen.append((name, layer))
    calls = _first_calls(chosen, run, inputs, caller)
    recorded = {execution.name: execution for execution in executions if not execution.call}
    held = 0
    for name, (layer, arguments) in calls.items():
        inputs_of_layer = [leaf for _, leaf in leaves(arguments)]
        arrays = [leaf for leaf in inputs_of_layer if isinstance(leaf, np.ndarray)]
        if not arrays or name not in recorded:
            continue
        further = _further(arrays)
        for title, change in _layer_changes(arrays, recorded[name]).items():
            if asked is not None and title not in asked[name]:
                continue
            outputs = partial(_outputs, layer, arguments, change, caller)
            full = held > _HELD
            probe = Probe({}, TOO_LARGE) if full else _probe(outputs, (), caller, further)
            of_layer = probes.setdefault(name, {})
            if probe:
                of_layer[title] = probe
                for value in probe.outputs.values():
                    held += value.size
    return probes


def _compute(
    run: Callable[[Tree], Any],
    inputs: Tree,
    caller: Caller,
    of_outputs: Change | None = None,
) -> Arrays:
    """Return a net's outputs, or what `of_outputs` makes of each."""
    outputs = caller.outputs(run(inputs))
    if of_outputs is None:
        return outputs
    return {name: of_outputs(array) for name, array in outputs.items()}


def _further(arrays: Sequence[np.ndarray]) -> tuple[float, ...]:
    """Return numbers of a layer's inputs, which differ if only one side took the whole batch."""
    first = arrays[0]
    numbers: list[float] = [first.size]
    for x in arrays:
        if _equal(x, first):
            continue
        length = 0.0
        if x.dtype.kind == "f":
            length = norm(x[np.isfinite(x)])
        numbers.append(length)
    return tuple(numbers)


def _outputs(layer: Any, arguments: Tree, change: Change, caller: Caller) -> Arrays:
    """Return the first output of a layer that is called on changed inputs."""

    def changed(leaf: np.ndarray) -> Any:
        return caller.tensor(change(leaf))

    def again() -> Any:
        return _mapped(changed, arguments)

    inputs, named = again()
    # Reads all: an operation may fail only when its result is read, and the next layer would be
    # blamed.
    read = []
    with keeping_inputs(layer, again):
        for _, leaf in leaves(layer(*inputs, **named)):
            if hasattr(leaf, "dtype"):
                read.append(caller.array(leaf))
    return {"output": next(iter(read))}


def _first_calls(
    layers: Sequence[tuple[str, Any]], run: Callable[[Tree], Any], inputs: Tree, caller: Caller
) -> dict[str, tuple[Any, Tree]]:
    """Run the net, and return each layer with copies of the inputs of its first call."""
    calls: dict[str, tuple[Any, Tree]] = {}

    def copied(leaf: Any) -> np.ndarray:
        return np.array(caller.array(leaf))

    def hook_of(name: str) -> Callable[..., None]:
        def before(layer: Any, inputs: Any, named: Any) -> None:
            # an input that cannot be copied: a cache, which would grow
            with contextlib.suppress(TypeError):
                arguments = (tuple(inputs), dict(named))
                if name not in calls:
                    calls[name] = layer, _mapped(copied, arguments)

        return before

    with contextlib.ExitStack() as hooks:
        for name, layer in layers:
            hook = layer.register_forward_pre_hook(hook_of(name), with_kwargs=True)
            hooks.callback(hook.remove)
        try:
            if layers:
                run(_few_samples(inputs, 1))
        except Exception:  # the net takes no other number of samples
            calls.clear()
            run(inputs)
    return calls


def _few_samples(inputs: Tree, least: int) -> Tree:
    """Shorten a batch of large images to about `_LARGEST_BATCH` numbers, but to no fewer than
    `least` samples.
    """
    arrays = [leaf for leaf in named_leaves(inputs, "").values() if leaf.ndim]
    first = arrays[0] if arrays else np.zeros(0)
    if first.ndim < 4 or first.dtype.kind != "f":
        return inputs
    samples = len(first)
    count = _LARGEST_BATCH * samples // max(first.size, 1)
    count = max(least, count)
    return map_tree(partial(_shortened, samples, count), inputs)


def _shortened(of: int, count: int, leaf: np.ndarray) -> np.ndarray:
    """Return the first `count` rows of an array with `of` rows; others stay unchanged."""
    if not leaf.ndim or len(leaf) != of:
        return leaf
    return leaf[:count]


def _tables(inputs: Tree, executions: Sequence[Layer]) -> dict[str, int]:
    """Return a dict (input's name → the number of rows in the table of the embedding that takes
    this input).
    """
    rows: dict[str, int] = {}
    named = named_leaves(inputs, "inputs")
    for layer in executions:
        ids = layer.input
        if layer.kind != "embedding" or ids is None or not ids.ndim:
            continue
        count = _rows(layer)
        for name, leaf in named.items():
            if not leaf.ndim:
                continue
            if np.array_equal(ids[: len(leaf)], leaf):
                rows[name] = min(count, rows.get(name, count))
    return {name: rows[name] for name in named if name in rows}


def _probe(
    compute: Callable[[], Arrays], inputs: Tree, caller: Caller, further: Sequence[float]
) -> Probe | None:
    try:
        with caller.calling(inputs):
            return Probe(compute(), "", further=tuple(further))
    except caller.absent:
        return None
    except Exception as error:
        message = words_of(error)
        return Probe({}, message, further=tuple(further))


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    def of_array(leaf: Any) -> Any:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            return function(leaf)
        if leaf is None or isinstance(leaf, bool | int | float | str):
            return leaf
        raise TypeError(type(leaf).__name__)

    return map_values(of_array, tree)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool((a == b).all())


def _rows(layer: Layer) -> int:
    """Return the number of rows in an embedding's table."""
    for _, shape in layer.parameters:
        if len(shape) == 2:
            return shape[0]
    return 0


def _layer_changes(arrays: Sequence[np.ndarray], layer: Layer) -> dict[str, Change]:
    """Return a dict (name of a probe → the function that changes a layer's inputs)."""
    first = arrays[0]
    changes: dict[str, Change] = {}

    def scaled(factor: float) -> Change:
        def change(leaf: np.ndarray) -> np.ndarray:
            if not _equal(leaf, first):
                return leaf
            return np.asarray(leaf * factor, leaf.dtype)

        return change

    if first.dtype.kind == "f":
        bare = layer.leaf and not layer.parameters  # only such a layer may clip its output
        for title, factor in FACTORS.items():
            if bare or factor <= 1:
                changes[title] = scaled(factor)
    elif layer.kind == "embedding":
        rows = _rows(layer)
        _, table = layer.parameters[0] if rows else ("", ())
        if rows and math.prod(table) <= _LARGEST:
            changes[IDS] = partial(_every_id, rows)
    if first.ndim and len(first) > 1:
        changes["one sample"] = partial(_shortened, len(first), 1)
    places: list[Shape] = []
    if first.ndim == 3:
        places = [(1,), (2,)]
    elif first.ndim > 3:
        places = [tuple(range(2, first.ndim))]
    for axes in places:
        sizes = [first.shape[axis] for axis in axes]
        if min(sizes) > 1:
            word = "axis" if len(axes) == 1 else "axes"
            numbers = ", ".join(map(str, axes))
            title = f"cropped by one along {word} {numbers}"
            changes[title] = partial(_cropped, first.shape, axes)
    return changes


def _every_id(rows: int, leaf: np.ndarray) -> np.ndarray:
    """Return all ids below `rows` along the last axis."""
    ids = np.arange(rows, dtype=leaf.dtype)
    others = (1,) * (leaf.ndim - 1)
    return ids.reshape((*others, rows))


def _cropped(first: Shape, axes: Shape, leaf: np.ndarray) -> np.ndarray:
    """Crop an input by one along `axes`, of which `first` is the shape of the first input."""
    shape = leaf.shape
    own: set[int] = set()
    if shape == first:
        own.update(axes)
    else:
        # Other arguments are cropped along axes of the same size, masks and positions along any of
        # that length.
        if leaf.ndim == len(first):
            alike = [axis for axis in axes if shape[axis] == first[axis]]
            own.update(alike)
        if axes == (1,):
            further = range(1, leaf.ndim)
            as_long = [axis for axis in further if shape[axis] == first[1]]
            own.update(as_long)
    places = []
    for axis, size in enumerate(shape):
        end = size - (axis in own)
        places.append(slice(end))
    return leaf[tuple(places)]


def _net_changes(inputs: Tree, rows: Mapping[str, int]) -> dict[str, Tree]:
    """Return a dict (name of a probe → the net's changed inputs).

    `rows` is the result of `_tables`.
    """
    leaves_by_name = named_leaves(inputs, "inputs")
    arrays = {name: leaf for name, leaf in leaves_by_name.items() if leaf.ndim}
    masks = {name for name, leaf in arrays.items() if is_mask(name, leaf)}
    first = next(iter(arrays.values()), np.zeros(0))
    count = len(first)
    image = first.ndim > 3 and first.dtype.kind == "f"

    def each(change: NamedChange) -> Tree:
        names = iter(named_leaves(inputs, "inputs"))

        def changed(leaf: np.ndarray) -> np.ndarray:
            name = next(names)
            return change(name, leaf) if leaf.ndim else leaf

        return map_tree(changed, inputs)

    def samples(number: int) -> Tree:
        def taken(name: str, leaf: np.ndarray) -> np.ndarray:
            if len(leaf) != count:
                return leaf
            return leaf.take(range(number), 0, mode="wrap")

        return each(taken)

    def sized(times: int, plus: int) -> Tree:
        """Return inputs whose image size or sequence length n becomes `times` · n + `plus`."""

        def change(name: str, leaf: np.ndarray) -> np.ndarray:
            has_axes = leaf.ndim == first.ndim
            alike = has_axes and leaf.dtype.kind == "f"
            last = 2 if alike else leaf.ndim
            axes = range(2, leaf.ndim * alike) if image else range(1, last)
            for axis in axes:
                size = leaf.shape[axis]
                if image or (size,) == first.shape[1:2]:
                    places = range(size * times + plus)
                    leaf = leaf.take(places, axis, mode="wrap")
            return leaf

        return each(change)

    def only(chosen: Collection[str], change: Change) -> Tree:
        return each(lambda name, leaf: change(leaf) if name in chosen else leaf)

    changes: dict[str, Tree] = {}
    if count > 1:
        changes["one sample"] = samples(1)
        changes[MORE] = samples(count + 1)
    extent = first.shape[2:] if image else first.shape[1:2]
    if first.ndim > 1 and min(extent) > 1:
        for title, (times, plus) in SIZES.items():
            changes[title] = sized(times, plus)
    numbers = set()
    for name, leaf in arrays.items():
        if leaf.dtype.kind == "f" and name not in masks:
            numbers.add(name)

    for title, factor in _FACTORS.items() if numbers else ():
        changes[title] = only(numbers, partial(np.multiply, factor))
    if masks:
        changes[MASKS] = only(masks, _inverted)
    for name, number in rows.items():
        title = IDS if arrays[name].size >= number else FEWER_IDS
        if len(arrays) > 1:
            title = f"{title} ({name})"
        changes[title] = only([name], partial(_looked_up, number))
    return changes


def _inverted(mask: np.ndarray) -> np.ndarray:
    """Return a mask that hides what `mask` shows."""
    # inverted, it would hide everything: only the last place is hidden
    if mask.all():
        shown = mask[..., :-1]
        hidden = np.zeros_like(mask[..., -1:])
        return np.concatenate([shown, hidden], -1)
    return (1 - mask).astype(mask.dtype)


def _looked_up(rows: int, ids: np.ndarray) -> np.ndarray:
    """Return the ids below `rows`, as many as fit into the shape of `ids`."""
    every_id = np.arange(rows, dtype=ids.dtype)
    return np.resize(every_id, ids.shape)


def measure(
    rounding: dict[str, dict[str, dict[str, float]]],
    probes: Probes,
    asked: AskedProbes,
    others: Probes,
    times: float,
) -> None:
    """Raise the rounding of each output of the asked probes to `times` · (relative change from
    `probes` to `others`) if it is smaller.

    `rounding` maps layers to probes, outputs and errors.
    """
    for layer, titles in asked.items():
        for title in titles:
            errors = rounding.setdefault(layer, {}).setdefault(title, {})
            probe = probes[layer][title]
            other = others.get(layer, {}).get(title)
            for name, value in probe.outputs.items():
                x = other.outputs.get(name) if other else None
                error = math.inf if x is None else times * relative_error(x, value)
                errors[name] = max(error, errors.get(name, 0.0))
