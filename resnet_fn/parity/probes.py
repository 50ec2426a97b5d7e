"""Compare both sides on probes: runs of the net, and of each layer alone, on other inputs than the
batches.
"""

import contextlib
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.layer_outputs import compare_layer, layout
from resnet_fn.parity.layers.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    difference,
    norm,
    relative_error,
)
from resnet_fn.parity.layers.layer import TOLERANCE, Layer
from resnet_fn.parity.layers.record import leaves
from resnet_fn.parity.notes import attempt, settings_differences
from resnet_fn.parity.stages import paired_outputs
from resnet_fn.parity.trace import Arrays, Probe, Probes, Recording, Tree, map_tree, named_leaves

NET = ""  # the name of the whole net among the names of layers
FACTORS = {"0.01·x": 0.01, "−x": -1.0, "10·x": 10.0}
IDS, MASKS = "every id once", "masks inverted"
TOO_LARGE = "those of other layers fill the memory that probes may have"
_HELD = 1 << 28  # the most numbers in the probes of all layers of one side
# the most numbers in the batch of images from which layers get their inputs
_LARGEST_BATCH = 1 << 18
_LARGEST = 1 << 22  # a larger embedding table is not probed with every id
# Layers with inexact kernels on a CPU. tanh is 2e-5 off for inputs times 10, and elu 1e-5 for
# inputs times 0.001.
_KERNELS = ("tanh", "tanhshrink", "elu", "rnn", "gru", "lstm", "rnncell", "grucell", "lstmcell")
_OF_KERNELS = 1e-3  # relative errors up to this are blamed on these kernels
# the same limit if such a function may run outside of layers; only for probes that scale numbers
_UNSEEN = 5e-5
_WITH_WINDOWS = ("conv", "transposed conv", "maxpool", "avgpool", "upsample")
Change = Callable[[np.ndarray], np.ndarray]
Asked = Mapping[str, Collection[str]]  # layer's name ("" for the net) → names of probes to compute


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

    chosen = [(name, layer) for name, layer in layers if asked is None or name in asked]
    with contextlib.ExitStack() as hooks:
        for name, layer in chosen:
            hooks.callback(layer.register_forward_pre_hook(hook_of(name), with_kwargs=True).remove)
        try:
            if chosen:
                run(_few_samples(inputs, 1))
        except Exception:  # the net takes no other number of samples
            calls.clear()
            run(inputs)
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
        changes |= {"sizes − 1": sized(1, -1), "sizes + 1": sized(1, 1), "sizes × 2": sized(2, 0)}
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


def is_mask(name: str, leaf: np.ndarray) -> bool:
    """Return whether an input is a mask: an array of bool, of integers 0 and 1, or with "mask" in
    the name.
    """
    ones = leaf.size and leaf.dtype.kind in "iu" and bool(np.isin(leaf, (0, 1)).all())
    return leaf.dtype == bool or "mask" in name or bool(ones)


def measure(probes: Probes, asked: Asked, others: Probes, times: float) -> None:
    """Raise each asked probe's rounding to `times` · (relative change from `probes` to `others`) if
    it is smaller.
    """
    for layer, titles in asked.items():
        for title in titles:
            probe, other = probes[layer][title], others.get(layer, {}).get(title)
            for name, value in probe.outputs.items():
                x = other.outputs.get(name) if other else None
                error = (
                    math.inf
                    if x is None or x.shape != value.shape
                    else times * relative_error(x, value)
                )
                probe.rounding[name] = max(error, probe.rounding.get(name, 0.0))


def attempted(record: Callable[[], Any], notes: list[str], side: str) -> Any:
    """Return what `record` returns.

    If `record` raises an error, return None and add a line to `notes`.
    """
    try:
        return record()
    except Exception as error:  # the verdict does not need probes
        notes.append(
            f"the probes of {side} failed, so there are none ({type(error).__name__}: "
            f"{first_line(error)})"
        )
        return None


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


@dataclasses.dataclass(frozen=True)
class Finding:
    """A probe (a run on changed inputs) on which the two sides differ, although they agree on the
    batches.
    """

    layer: str  # the name of our layer, or `NET`
    probe: str
    difference: Difference | None  # None if our side fails or has other shapes
    words: str  # how they differ


@dataclasses.dataclass
class Probed:
    """The results of comparing both sides' probes (runs on changed inputs)."""

    findings: list[Finding] = field(default_factory=list)
    # our layer, or `NET` → the probes that agree
    agreed: dict[str, list[str]] = field(default_factory=dict)
    # known errors of MindSpore's kernels, a line each
    kernels: list[str] = field(default_factory=list)
    # probe that compares nothing → the reason
    left_out: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return one line for each layer with findings, and one for each known error of MindSpore's
        kernels.
        """
        by_layer: dict[str, list[Finding]] = {}
        for one in self.findings:
            by_layer.setdefault(one.layer, []).append(one)
        return [
            f"on your batches the same; with {', '.join(one.probe for one in pairs)}: "
            f"{f'`{layer}` differs' if layer else 'the outputs differ'}: {pairs[0].words}"
            for layer, pairs in by_layer.items()
        ] + self.kernels


def compare_probes(
    ours: Recording, theirs: Recording, layers: Mapping[str, str], forward: bool
) -> Probed:
    """Compare both sides' outputs on the recorded probes (runs on changed inputs).

    `layers` maps the net's layers to the reference's. `forward` is True if the nets' outputs agree
    on the batches.
    """
    probed, pairs = Probed(), list[_Pair]()
    a, b = (
        {one.name: one for one in side.layers["eval"] if not one.call} for side in (ours, theirs)
    )
    known = [name for name, one in a.items() if one.kind in _KERNELS]
    for name, answers in ours.probes.items():
        mine, other = a.get(name), b.get(layers.get(name, ""))
        if mine is None or other is None or mine.output is None or other.output is None:
            continue
        shown = compare_layer("eval", mine, other)
        differs = {DIFFERS, UNDECIDED} & {
            shown.output.verdict,
            shown.input.verdict if shown.input else DIFFERS,
        }
        if (
            differs
            or mine.input is None
            or other.input is None
            or mine.output.size != other.output.size
        ):
            continue  # probes need layers that agree on equal inputs
        hints = (
            "; ".join(attempt(settings_differences, mine, other, True))
            if mine.leaf and other.leaf
            else ""
        )
        inside = any(f"{one}.".startswith(f"{name}.") for one in known)
        kernels = _OF_KERNELS if inside else _UNSEEN if mine.is_own else 0.0
        for title, probe in theirs.probes.get(other.name, {}).items():
            if title in answers and (title in FACTORS or mine.input.shape == other.input.shape):
                pairs.append(_Pair(name, other.name, title, answers[title], probe, kernels, hints))
    net = ours.probes.get(NET, {}), theirs.probes.get(NET, {})
    windows = [one for one in pairs if one.hints and a[one.name].kind in _WITH_WINDOWS]
    of_layers = few(list(dict.fromkeys(f"{one.name}: {one.hints}" for one in windows)))
    for title in dict.fromkeys([*net[0], *net[1]]) if forward else ():
        if title in net[0] and title in net[1]:
            kernels = _OF_KERNELS if known else _UNSEEN
            hints = of_layers if "sizes" in title else ""  # other sizes show differences of windows
            pairs.append(_Pair(NET, NET, title, net[0][title], net[1][title], kernels, hints))
        else:
            probed.left_out[title] = "one side has no record of it"
    compared = [(pair, one) for pair in pairs if (one := _compared(probed, pair)) is not None]
    asked: dict[str, list[str]] = {}
    for pair, (items, _) in compared:
        if any(item.verdict == DIFFERS for item in items):
            asked.setdefault(pair.other, []).append(pair.title)
    if asked and theirs.measure_probes:
        try:
            theirs.measure_probes(asked)
        except Exception as error:  # then the tolerance alone decides
            probed.left_out["the rounding of probes"] = (
                f"not measured ({type(error).__name__}: {first_line(error)})"
            )
    for pair, (items, words) in compared:
        _judge(probed, pair, items, words)
    probed.findings = [
        one
        for one in probed.findings
        if not any(
            one.probe == other.probe and other.layer.startswith(f"{one.layer}.")
            for other in probed.findings
        )
    ]
    return probed


class _Pair(NamedTuple):
    """The results of both sides on one probe."""

    name: str  # our layer
    other: str  # the reference's layer
    title: str
    ours: Probe
    theirs: Probe
    kernels: float  # up to this relative error, MindSpore's tanh and elu may be the cause
    hints: str


def _compared(probed: Probed, pair: _Pair) -> tuple[list[Difference], str] | None:
    """Return a probe's differences, and a text if our side fails or its outputs differ in names or
    shapes, or None.
    """
    _, _, title, ours, theirs, _, _ = pair
    finite = all(np.isfinite(value).all() for value in theirs.outputs.values())
    apart = len(ours.further) != len(theirs.further) or not np.allclose(
        ours.further, theirs.further, rtol=1e-3
    )
    if theirs.error or not finite or apart or ours.error == TOO_LARGE:
        if not pair.name:
            why = "the two sides had different inputs" if apart else "the reference is not finite"
            probed.left_out[title] = "the reference rejects it" if theirs.error else why
        return None
    if ours.error:
        return [], f"it fails here ({ours.error})"
    names = paired_outputs(ours.outputs, theirs.outputs)
    if names is not None:
        pairs = [(name, ours.outputs[names[name]], value) for name, value in theirs.outputs.items()]
        return [_difference(name, x, y) for name, x, y in pairs], ""
    if not pair.name:
        return [], "its outputs have other names or shapes here"
    [x], [(name, y)] = ours.outputs.values(), theirs.outputs.items()
    words = f"{list(x.shape)} here, {list(y.shape)} in the reference"
    return [_difference(name, x, layout(x, y)(y))] if x.size == y.size else [], words


def _difference(name: str, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    """Return the difference of two arrays.

    If the arrays agree, only the relative error is computed.
    """
    error = relative_error(ours, theirs)
    if error <= TOLERANCE:
        return Difference(name, 0.0, error, 1.0, 0.0, 0.0, (), 0.0, TOLERANCE)
    return difference(name, ours, theirs, TOLERANCE)


def _judge(probed: Probed, pair: _Pair, items: Sequence[Difference], words: str) -> None:
    """Add a probe's result to `probed`: an agreement, a known kernel error or a finding.

    Skip undecided results.
    """
    name, _, title, _, theirs, kernels, hints = pair
    measured = [
        dataclasses.replace(one, rounding=theirs.rounding.get(one.name, 0.0)) for one in items
    ]
    item = max(measured, key=lambda one: (one.verdict == DIFFERS, one.relative), default=None)
    if item and item.verdict == UNDECIDED:
        return
    if item and item.verdict != DIFFERS:
        probed.agreed.setdefault(name, []).append(title)
    elif item and item.relative <= kernels and (kernels > _UNSEEN or title in FACTORS):
        words = (
            f"a difference of {item.relative:.1e} with {title}, which MindSpore's kernels of "
            "tanh and elu can cause"
        )
        probed.kernels.append(f"{name or 'the net'}: {words}")
    else:
        words = item.values() if item else words
        probed.findings.append(Finding(name, title, item, f"{words}; {hints}" if hints else words))
