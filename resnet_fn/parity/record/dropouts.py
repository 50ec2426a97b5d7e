"""Measure where a net applies dropout, with which probability and mask, and how."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from resnet_fn.parity.record.masks_of_runs import measured_mask, nearest_share
from resnet_fn.parity.record.outcomes import RUNS_BEFORE, outcomes_of, repeat
from resnet_fn.parity.record.repeated_runs import Runs, repeated
from resnet_fn.parity.record.responses import measured_branch, response_of
from resnet_fn.parity.record.side import Dropped, Only
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.masks import takes_mask

# kinds of layers that drop once in each call
_DROPPING = ("dropout", "drop path", "attention", "lstm", "gru", "rnn")

# shape of the ones on which a mask is measured, cut to the input's number of axes
_ONES = (2048, 3, 2, 2, 2)
# At most so many layers of a class are compiled, until one can be.
_TRIES = 3


# A layer runs so often if some of its results repeat, because whole paths are dropped …
_RUNS_OF_PATHS = 64

# … until its outputs take more bytes.
_MOST_BYTES = 2**28

# `Side.dropping_layer`
MakeLayer = Callable[[str, np.ndarray | None, Only | None, bool], Callable[[], np.ndarray]]


def drops_of(
    dropped: Dropped,
    layers: Sequence[Layer],
    make_layer: MakeLayer,
    output: np.ndarray | None = None,
) -> list[Drop]:
    """Return the places where a net applies dropout.

    `dropped` lists the layer, the attribute and the probability of each dropout. `layers` are
    executions of layers in training mode, recorded without dropout. `make_layer` returns a
    function that runs a layer in training mode with random dropout. `output` is the net's output
    in training mode, without dropout; None: the effect on the net's output is not measured.
    """
    return _Measurement(dropped, layers, make_layer, output).drops()


def in_evaluation(drops: Sequence[Drop], layers: Sequence[Layer]) -> list[Drop]:
    """Return dropouts with whether they drop in evaluation mode, too, as far as masks show it.

    `layers` are executions of layers in evaluation mode, with dropout.
    """
    by_title = {layer.title: layer for layer in layers}
    marked = []
    for drop in drops:
        layer = by_title.get(drop.title)
        if layer and layer.input is not None and layer.output is not None and takes_mask(drop):
            changes = not np.array_equal(layer.input, layer.output)
            drop = dataclasses.replace(drop, in_evaluation=changes)
        marked.append(drop)
    return marked


def _with_runs(drop: Drop, runs: Runs) -> Drop:
    return dataclasses.replace(drop, varies=runs.varies, further=runs.further, error=runs.error)


def _with_results(drop: Drop, runs: Runs, y: np.ndarray, name: str) -> Drop:
    """Add what the runs of the layer `name` show, whose output without dropout is `y`."""
    if not _are_finite(runs.outputs, y):
        return dataclasses.replace(drop, finite=False, of=name)
    response = response_of(runs.outputs, y)
    outcomes = outcomes_of(runs.outputs, y)
    return dataclasses.replace(drop, response=response, outcomes=outcomes, of=name)


def _are_finite(outputs: Sequence[np.ndarray], y: np.ndarray | None) -> bool:
    """Return whether outputs are finite, or the output without dropout `y` is not, either."""
    if y is None or not np.isfinite(y).all():
        return True
    return all(np.isfinite(output).all() for output in outputs)


def _has_paths(outputs: Sequence[np.ndarray], x: np.ndarray | None, y: np.ndarray) -> bool:
    """Return whether whole paths are dropped, and not only what a layer adds to its input `x`."""
    return repeat(outputs, y) and not measured_branch(outputs, x, y)


def _outer(name: str) -> list[str]:
    """Return the paths of the layers around a layer, from the inside out."""
    outer = []
    while "." in name:
        name, _, _ = name.rpartition(".")
        outer.append(name)
    return outer


class _Measurement:
    def __init__(
        self,
        dropped: Dropped,
        layers: Sequence[Layer],
        make_layer: MakeLayer,
        output: np.ndarray | None,
    ) -> None:
        self._dropped, self._layers, self._make_layer = dropped, layers, make_layer
        self._output = output
        self._firsts = {
            layer.name: layer for layer in layers if layer.output is not None and not layer.call
        }
        # How many layers of each class and number of axes have been compiled; -1: one could be.
        self._compiled: dict[tuple[str, int], int] = {}
        # classes, and attributes or paths inside
        self._measured: set[tuple[str, str]] = set()

    def drops(self) -> list[Drop]:
        """Return the places in the order of execution, then those that did not run."""
        masked: dict[str, Drop] = {}
        for layer in sorted(self._layers, key=lambda execution: len(execution.name)):
            shares = [share for name, _, share in self._dropped if name == layer.name]
            if drop := self._by_mask(layer, shares):
                masked[layer.title] = drop
                inside = f"{layer.name}."
                self._dropped = [
                    dropout for dropout in self._dropped if not dropout[0].startswith(inside)
                ]
        drops: list[Drop] = []
        for layer in self._layers:
            if layer.settings.get("num_layers") == 1:
                continue
            if layer.title in masked:
                drops.append(masked[layer.title])
            else:
                drops += self._by_probability(layer)
        drops += self._by_probability(None)
        # A dropout layer that did not run may have passed its probability to a function.
        ran = {execution.name for execution in self._layers}
        ran.add("")
        for name, attribute, share in self._dropped:
            if attribute == "p" and name not in ran:
                drops += self._of_idle(name, share)
        return drops

    def _of_idle(self, name: str, share: float) -> list[Drop]:
        """Return [a dropout that did not run], or [] if runs show that the layer around it does not
        drop because of it.
        """
        outer = _outer(name)
        around = next((path for path in outer if path in self._firsts), "")
        gates = self._gates(outer, share)
        only = {(name, ""), *gates}
        runs = self._runs_with(around, only, False, share)
        if runs.varies == 0:  # None: it does not run alone
            return []
        y = self._firsts[around].output if around else self._output
        return [Drop(name, share, None, finite=_are_finite(runs.outputs, y))]

    def _runs_with(
        self,
        name: str,
        only: Only,
        compiled: bool,
        share: float,
        has_paths: Callable[[Sequence[np.ndarray]], bool] | None = None,
    ) -> Runs:
        """Run a layer on its inputs in the net, with no other dropouts than these.

        It runs more often if its outputs show that whole paths are dropped (`has_paths`).
        """
        make_run = partial(self._make_layer, name, None, only)
        if has_paths is None:
            return repeated(make_run, compiled, share)

        def is_enough(outputs: Sequence[np.ndarray]) -> bool:
            count = len(outputs)
            if count < RUNS_BEFORE:
                return False
            size = count * outputs[0].nbytes
            return size > _MOST_BYTES or (count == RUNS_BEFORE and not has_paths(outputs))

        return repeated(make_run, compiled, share, is_enough, _RUNS_OF_PATHS)

    def _gates(self, outer: Sequence[str], share: float) -> set[tuple[str, str]]:
        """Return the same rates around a dropout: `if self.dropout > 0: x = self.drop(x)` drops
        only if both are above 0.
        """
        around = ("", *outer)
        gates = set()
        for path, attribute, rate in self._dropped:
            if rate == share and path in around:
                gates.add((path, attribute))
        return gates

    def _by_probability(self, layer: Layer | None) -> list[Drop]:
        """Return the dropouts of a layer, or of the net, of which no mask is recognised."""
        name, title, once = "", "the net", False
        if layer:
            name, title, once = layer.name, layer.title, layer.kind in _DROPPING
        prefix = f"{name}." if name else ""
        drops = []
        for other, attribute, own in self._dropped:
            if other != name:
                continue
            # A block passes its probability on to the layers inside, which are listed themselves.
            alike = [
                path
                for path, word, share in self._dropped
                if path != name and share == own and (word == attribute or attribute != "layerdrop")
            ]
            if not once and any(path.startswith(prefix) for path in alike):
                continue
            drop = Drop(title, own, once)
            kind = (layer.class_name if layer else "", attribute)
            if kind not in self._measured and not (layer and layer.call):
                self._measured.add(kind)
                # A layer that is recorded as one may drop by a layer inside, as MindSpore's LSTM
                # does.
                only = {(name, attribute)}
                if once:
                    inside = [path for path, *_ in self._dropped if path.startswith(prefix)]
                    only |= {(path, "") for path in inside}
                drop = self._on_its_inputs(drop, name, only, layer)
            drops.append(drop)
        return drops

    def _on_its_inputs(self, drop: Drop, name: str, only: Only, layer: Layer | None) -> Drop:
        """Measure a dropout by running its layer as in the net, with no other dropout."""
        x = layer.input if layer else None
        y = layer.output if layer else self._output
        has_paths = None if y is None else partial(_has_paths, x=x, y=y)
        runs = self._runs_with(name, only, True, drop.share, has_paths)
        if not runs.outputs:
            return dataclasses.replace(drop, error=runs.error)
        drop = _with_runs(drop, runs)
        if y is None:
            return drop
        branch = measured_branch(runs.outputs, x, y)
        if branch:
            share = nearest_share([drop.share], branch.dropped, branch.draws)
            return dataclasses.replace(
                drop,
                share=share,
                scale=branch.scale,
                shape=branch.shape,
                is_branch=True,
            )
        return _with_results(drop, runs, y, name)

    def _with_response(self, drop: Drop, name: str) -> Drop:
        """Measure a mask's effect on the layer around it, for a port or a reference that drops
        there by a function.
        """
        outer = _outer(name)
        layer = next((self._firsts[path] for path in outer if path in self._firsts), None)
        if layer is None or layer.output is None:
            return drop
        kind = (layer.class_name, name.removeprefix(layer.name))
        if kind in self._measured:
            return drop
        self._measured.add(kind)
        y = layer.output
        runs = self._runs_with(layer.name, {(name, "")}, False, drop.share)
        gates = self._gates(outer, drop.share)
        if gates:
            as_built = self._runs_with(layer.name, {(name, ""), *gates}, False, drop.share)
            if not runs.varies:
                runs = as_built
            elif as_built.varies == 0:  # a condition on the outer rate is turned around
                drop = _with_runs(drop, as_built)
        if not runs.outputs:
            return dataclasses.replace(drop, of=layer.name)
        return _with_results(drop, runs, y, layer.name)

    def _by_mask(self, layer: Layer, shares: Sequence[float]) -> Drop | None:
        """Measure the dropout mask of a layer by running the layer on ones.

        Returns None if no mask is recognised.
        """
        x, y, title = layer.input, layer.output, layer.title
        if not shares or x is None or y is None:
            return None
        if x.ndim > len(_ONES):
            return None
        if not np.array_equal(x, y):
            return None
        ones = np.ones(_ONES[: x.ndim], np.float32)
        kind = (layer.class_name, x.ndim)
        tries = self._compiled.get(kind, 0)
        is_tried = 0 <= tries < _TRIES
        runs = self._runs_on(ones, layer, is_tried, shares[0])
        if is_tried:
            self._compiled[kind] = -1 if runs.outputs and not runs.error else tries + 1
        if not runs.outputs:  # no kernel on this device
            share = shares[0]
            if layer.class_name in ("Dropout", "DropoutExt") and share < 1:
                return Drop(title, share, True, 1 / (1 - share), x.shape)
            return None
        mask = measured_mask(runs.outputs, ones.shape)
        if mask is None:
            return None
        share = nearest_share(shares, mask.dropped, mask.draws)
        sizes = zip(x.shape, mask.shape, strict=True)
        shape = tuple(1 if of_mask == 1 else size for size, of_mask in sizes)
        drop = _with_runs(Drop(title, share, True, mask.scale, shape), runs)
        return drop if layer.call else self._with_response(drop, layer.name)

    def _runs_on(self, ones: np.ndarray, layer: Layer, compiled: bool, share: float) -> Runs:
        return repeated(
            partial(self._make_layer, layer.name, ones, None),
            compiled,
            share,
            lambda outputs: measured_mask(outputs, ones.shape) is not None,
        )
