"""Run the net, and each layer alone, on probes: other inputs than the batches."""

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.parity.trace.data import Probe, Probes
from resnet_fn.parity.trace.difference import norm, relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.probes import (
    FACTORS,
    IDS,
    MASKS,
    NET,
    SIZES,
    TOO_LARGE,
    Asked,
    is_mask,
)
from resnet_fn.parity.trace.tree import Arrays, Tree, leaves, map_tree, named_leaves

_HELD = 1 << 28  # the most numbers in the probes of all layers of one side

# the most numbers in the batch of images from which layers get their inputs
_LARGEST_BATCH = 1 << 18

_LARGEST = 1 << 22  # a larger embedding table is not probed with every id

Change = Callable[[np.ndarray], np.ndarray]


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
    inputs: Tree,
    executions: Sequence[Layer],
    caller: Caller,
    asked: Asked | None = None,
) -> Probes:
    """Run the net and each of its layers on probes (changed inputs), and return the results.

    `run` runs the net on inputs. `layers` has pairs (path, layer), and `executions` has their
    recorded executions. If `asked` is None, all probes are computed.
    """

    def compute(given: Tree) -> Arrays:
        return caller.outputs(run(given))

    some, probes = _few_samples(inputs, 2), Probes({NET: {}})
    for title, given in _net_changes(some, _tables(some, executions)).items():
        if asked is None or title in asked.get(NET, ()):
            norms = [norm(leaf) for leaf in named_leaves(given, "").values()]
            probe = _probe(partial(compute, given), given, caller, norms)
            probes[NET] |= {title: probe} if probe else {}
    chosen = [(name, layer) for name, layer in layers if asked is None or name in asked]
    calls = _first_calls(chosen, run, inputs, caller)
    recorded, held = {one.name: one for one in executions if not one.call}, 0
    for name, (layer, given) in calls.items():
        arrays = [leaf for _, leaf in leaves(given) if isinstance(leaf, np.ndarray)]
        if not arrays or name not in recorded:
            continue
        others = [x for x in arrays if not _equal(x, arrays[0])]
        norms = [norm(x[np.isfinite(x)]) if x.dtype.kind == "f" else 0.0 for x in others]
        further = (arrays[0].size, *norms)  # differs if only one side took the whole batch

        def outputs(change: Change, layer: Any = layer, given: Tree = given) -> Arrays:
            inputs, named = _mapped(lambda leaf: caller.tensor(change(leaf)), given)
            # Reads all: an operation may fail only when its result is read, and the next layer
            # would be blamed.
            read = [
                caller.array(leaf)
                for _, leaf in leaves(layer(*inputs, **named))
                if hasattr(leaf, "dtype")
            ]
            return {"output": next(iter(read))}

        for title, change in _layer_changes(arrays, recorded[name]).items():
            if asked is None or title in asked[name]:
                whole = held > _HELD
                probe = (
                    Probe({}, TOO_LARGE)
                    if whole
                    else _probe(partial(outputs, change), (), caller, further)
                )
                held += sum(value.size for value in probe.outputs.values()) if probe else 0
                probes.setdefault(name, {}).update({title: probe} if probe else {})
    return probes


def _first_calls(
    layers: Sequence[tuple[str, Any]], run: Callable[[Tree], Any], inputs: Tree, caller: Caller
) -> dict[str, tuple[Any, Tree]]:
    """Run the net, and return each layer with copies of the inputs of its first call."""
    calls: dict[str, tuple[Any, Tree]] = {}

    def hook_of(name: str) -> Callable[..., None]:
        def before(layer: Any, inputs: Any, named: Any) -> None:
            # an input that cannot be copied: a cache, which would grow
            with contextlib.suppress(TypeError):
                given = (tuple(inputs), dict(named))
                calls[name] = calls.get(name) or (
                    layer,
                    _mapped(lambda leaf: np.array(caller.array(leaf)), given),
                )

        return before

    with contextlib.ExitStack() as hooks:
        for name, layer in layers:
            hooks.callback(layer.register_forward_pre_hook(hook_of(name), with_kwargs=True).remove)
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
    given = [leaf for leaf in named_leaves(inputs, "").values() if leaf.ndim]
    first = given[0] if given else np.zeros(0)
    if first.ndim < 4 or first.dtype.kind != "f":
        return inputs
    count = max(least, _LARGEST_BATCH * len(first) // max(first.size, 1))
    return map_tree(
        lambda leaf: leaf[:count] if leaf.ndim and len(leaf) == len(first) else leaf, inputs
    )


def _tables(inputs: Tree, executions: Sequence[Layer]) -> dict[str, int]:
    """Return a dict (input's name → the number of rows in the table of the embedding that takes
    this input).
    """
    tables = [
        (one, one.input) for one in executions if one.kind == "embedding" and one.input is not None
    ]
    rows = dict[str, int]()
    for (name, leaf), (one, ids) in itertools.product(
        named_leaves(inputs, "inputs").items(), tables
    ):
        if leaf.ndim and ids.ndim and np.array_equal(ids[: len(leaf)], leaf):
            rows[name] = min(_rows(one), rows.get(name, _rows(one)))
    return rows


def _probe(
    compute: Callable[[], Arrays], given: Tree, caller: Caller, further: Sequence[float]
) -> Probe | None:
    try:
        with caller.calling(given):
            return Probe(compute(), "", further=tuple(further))
    except caller.absent:
        return None
    except Exception as error:
        return Probe({}, f"{type(error).__name__}: {first_line(error)}", further=tuple(further))


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    if type(tree) is dict:
        return {key: _mapped(function, branch) for key, branch in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_mapped(function, branch) for branch in tree)
    if hasattr(tree, "shape") and hasattr(tree, "dtype"):
        return function(tree)
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(type(tree).__name__)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())


def _rows(layer: Layer) -> int:
    """Return the number of rows in an embedding's table."""
    return next((shape[0] for _, shape in layer.parameters if len(shape) == 2), 0)


def _layer_changes(arrays: Sequence[np.ndarray], layer: Layer) -> dict[str, Change]:
    """Return a dict (name of a probe → the function that changes a layer's inputs)."""
    first, changes = arrays[0], dict[str, Change]()

    def scaled(factor: float) -> Change:
        return lambda leaf: np.asarray(leaf * factor, leaf.dtype) if _equal(leaf, first) else leaf

    if first.dtype.kind == "f":
        bare = layer.leaf and not layer.parameters  # only such a layer may clip its output
        changes |= {
            title: scaled(factor) for title, factor in FACTORS.items() if bare or factor <= 1
        }
    elif (
        layer.kind == "embedding"
        and (rows := _rows(layer))
        and math.prod(layer.parameters[0][1]) <= _LARGEST
    ):
        changes[IDS] = lambda leaf: np.arange(rows, dtype=leaf.dtype).reshape(
            (1,) * (leaf.ndim - 1) + (rows,)
        )
    if first.ndim and len(first) > 1:
        changes["one sample"] = lambda leaf: (
            leaf[:1] if leaf.ndim and len(leaf) == len(first) else leaf
        )
    places = (
        [(1,), (2,)] if first.ndim == 3 else [tuple(range(2, first.ndim))] if first.ndim > 3 else []
    )
    for axes in [axes for axes in places if min(first.shape[axis] for axis in axes) > 1]:

        def cropped(leaf: np.ndarray, axes: tuple[int, ...] = axes) -> np.ndarray:
            # Other arguments are cropped along axes of the same size, masks and positions along any
            # of that length.
            alike = [
                axis
                for axis in axes
                if leaf.ndim == first.ndim and leaf.shape[axis] == first.shape[axis]
            ]
            as_long = [
                axis
                for axis in range(1, leaf.ndim)
                if axes == (1,) and leaf.shape[axis] == first.shape[1]
            ]
            own = axes if leaf.shape == first.shape else {*alike, *as_long}
            return leaf[tuple(slice(size - (axis in own)) for axis, size in enumerate(leaf.shape))]

        changes[
            f"cropped by one along {'axis' if len(axes) == 1 else 'axes'} "
            f"{', '.join(map(str, axes))}"
        ] = cropped
    return changes


def _net_changes(inputs: Tree, rows: Mapping[str, int]) -> dict[str, Tree]:
    """Return a dict (name of a probe → the net's changed inputs).

    `rows` is the result of `_tables`.
    """
    given = {name: leaf for name, leaf in named_leaves(inputs, "inputs").items() if leaf.ndim}
    masks = {name for name, leaf in given.items() if is_mask(name, leaf)}
    first = next(iter(given.values()), np.zeros(0))
    count, image = len(first), first.ndim > 3 and first.dtype.kind == "f"

    def each(change: Callable[[str, np.ndarray], np.ndarray]) -> Tree:
        names = iter(named_leaves(inputs, "inputs"))
        return map_tree(
            lambda leaf: change(next(names), leaf) if leaf.ndim else (next(names), leaf)[1], inputs
        )

    def samples(number: int) -> Tree:
        return each(
            lambda name, leaf: (
                leaf.take(range(number), 0, mode="wrap") if len(leaf) == count else leaf
            )
        )

    def sized(times: int, plus: int) -> Tree:
        """Return inputs whose image size or sequence length n becomes `times` · n + `plus`."""

        def change(name: str, leaf: np.ndarray) -> np.ndarray:
            alike = leaf.ndim == first.ndim and leaf.dtype.kind == "f"
            axes = range(2, leaf.ndim * alike) if image else range(1, 2 if alike else leaf.ndim)
            for axis in [
                axis for axis in axes if image or leaf.shape[axis : axis + 1] == first.shape[1:2]
            ]:
                leaf = leaf.take(range(leaf.shape[axis] * times + plus), axis, mode="wrap")
            return leaf

        return each(change)

    def inverted(name: str, leaf: np.ndarray) -> np.ndarray:
        # inverted, it would hide everything: only the last place is hidden
        if name in masks and leaf.all():
            return np.concatenate([leaf[..., :-1], np.zeros_like(leaf[..., -1:])], -1)
        return (1 - leaf).astype(leaf.dtype) if name in masks else leaf

    def looked_up(chosen: str, number: int) -> Tree:
        return each(
            lambda name, x: (
                np.resize(np.arange(number, dtype=x.dtype), x.shape) if name == chosen else x
            )
        )

    changes: dict[str, Tree] = (
        {"one sample": samples(1), "n + 1 samples": samples(count + 1)} if count > 1 else {}
    )
    if first.ndim > 1 and min(first.shape[2:] if image else first.shape[1:2]) > 1:
        changes |= {title: sized(*how) for title, how in SIZES.items()}
    numbers = {name for name, leaf in given.items() if leaf.dtype.kind == "f"} - masks
    for title, factor in (("0·x", 0.0), ("−x", -1.0), ("10·x", 10.0)) if numbers else ():
        changes[title] = each(
            partial(lambda by, name, x: x * by if name in numbers else x, np.float32(factor))
        )
    changes |= {MASKS: each(inverted)} if masks else {}
    for name, number in rows.items():
        title = IDS if given[name].size >= number else "as many ids as fit"
        changes[title if len(given) == 1 else f"{title} ({name})"] = looked_up(name, number)
    return changes


def measure(
    rounding: dict[str, dict[str, dict[str, float]]],
    probes: Probes,
    asked: Asked,
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
            probe, other = probes[layer][title], others.get(layer, {}).get(title)
            for name, value in probe.outputs.items():
                x = other.outputs.get(name) if other else None
                error = (
                    math.inf
                    if x is None or x.shape != value.shape
                    else times * relative_error(x, value)
                )
                errors[name] = max(error, errors.get(name, 0.0))


@contextlib.contextmanager
def same_attributes(layers: Iterable[Any]) -> Iterator[None]:
    """Restore the attributes of layers after a `with` block, including changed lists, dicts and
    sets.
    """
    kept = [(vars(layer), dict(vars(layer))) for layer in layers]
    filled = [
        (value, copy.copy(value))
        for _, before in kept
        for value in before.values()
        if type(value) in (list, dict, set)
    ]
    try:
        yield
    finally:
        for attributes, before in kept:
            attributes.clear()
            attributes.update(before)
        for value, before in filled:
            value.clear()
            value.extend(before) if isinstance(value, list) else value.update(before)
