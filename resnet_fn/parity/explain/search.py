"""Search for the cause of a difference: change the reference's torch calls until they give the
port's result.
"""

import contextlib
import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from resnet_fn.config.wording import first_line
from resnet_fn.parity.compare.notes import NoCause
from resnet_fn.parity.explain.axis_changes import PERMUTED
from resnet_fn.parity.explain.call_changes import (
    AS_ARGUMENT,
    FACTOR_LEFT_OUT,
    OF_THE_MASK,
    changes,
)
from resnet_fn.parity.explain.calls import Call, Calls, Chosen, Solved
from resnet_fn.parity.explain.constants import Constants
from resnet_fn.parity.explain.factors import rounded
from resnet_fn.parity.explain.gradient_changes import gradient_changes
from resnet_fn.parity.explain.loss_changes import words_of_term
from resnet_fn.parity.explain.wanted import Wanted
from resnet_fn.parity.record.torch_decisions import is_float
from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.layer import title_of
from resnet_fn.parity.trace.stages import GRADIENTS, LOSS, TRAIN_FORWARD
from resnet_fn.parity.trace.tree import Arrays, leaves

_SECONDS = 10.0  # the most that a search takes

_FITS = 10.0  # a change fits if the remaining error is at most so many times the rounding

_LEAST = 2e-6  # an error that always fits, however small the rounding

# So many times that error fits, too, if nothing fits better: the port's kernels have errors that
# the reference's rounding does not show. It is the tolerance of an output, 1e-5.
_LOOSE = 5.0

# … and if the change leaves at most this part of the error.
_PART = 0.05

_BEAM = 4  # so many of the best single changes are tried together with a second change

# The first of two changes of a loss, which is one number, may move it away from the port's.
_BEAM_OF_LOSS, _FARTHER = 6, 4.0

_CAUSES = 5  # the search ends after so many causes


_NOT_ALL = "this does not explain everything, since it leaves a difference in"

_DOUBLED = "doubled"  # the change of a number by which the search finds its factor

_Cause = dict[str, list[str]]  # words of each change that is made together → places of its calls


class _DoneError(Exception):
    """Raised to end a run when the array to compare is computed."""


class Searcher:
    """Searches for changes of torch calls that make the reference's module compute the port's
    arrays.

    Args:
        module: the reference's module, with the same weights as the port.
        forward: a function of a bool (True for training mode) that runs the module and returns the
            outputs.
        backward: a function that returns the loss and the gradients of the first batch.
        loss: a function of the module's outputs on the first batch that returns their loss.
        seconds: the longest time of a search.
    """

    def __init__(
        self,
        module: Any,
        forward: Callable[[bool], Any],
        backward: Callable[[], Arrays],
        loss: Callable[[Any], Any],
        seconds: float = _SECONDS,
    ) -> None:
        self.module, self.forward, self.backward, self.seconds = module, forward, backward, seconds
        self.loss = loss
        self.names = {id(layer): name for name, layer in module.named_modules() if name}
        self.buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        self.solved: Solved = {}
        # The outputs on the first batch, and the number of calls that computed them, if the loss
        # differs: then most tries compute the loss only.
        self.outputs: Any = None
        self.before_loss = 0

    def __call__(self, wanted: Wanted) -> list[str]:
        """Return a line for each change that gives the `wanted` arrays, and a line if differences
        remain or the search stopped early.
        """
        self.wanted, self.until = wanted, time.perf_counter() + self.seconds
        self.constants = Constants(self.module, wanted.attributes or {})
        try:
            return self._lines(wanted)
        finally:
            self.constants.put_all_back()

    def _lines(self, wanted: Wanted) -> list[str]:
        chosen: Chosen = {}
        causes: list[_Cause] = []
        ended: list[str] = []
        while len(causes) < _CAUSES:
            try:
                run, name, value = self._first_difference(chosen)
                error = self._error(name, value)
                fit = Chosen()
                if error > 1:
                    taken = self._constants_of_port(chosen, name, error)
                    if taken:
                        causes.append({self.constants.words(path): [path] for path in taken})
                        continue
                    known = {title for cause in causes for title in cause}
                    fit = self._fit(chosen, run, name, value, known)
            except TimeoutError:
                break
            except Exception as failure:  # keeps the causes that were found before
                if not causes:
                    raise
                ended = [
                    f"the search for further causes failed ({type(failure).__name__}: "
                    f"{first_line(failure)})"
                ]
                break
            _add(causes, fit, run)
            chosen |= fit
            if not fit:
                if causes and error > _LOOSE:
                    ended = [f"{_NOT_ALL} {name or _results(wanted)}"]
                break
        if time.perf_counter() > self.until:
            ended = [NoCause(f"the search for a cause stopped after {self.seconds:g} s")]
        return [*map(_line, causes), *ended]

    def _constants_of_port(self, chosen: Chosen, name: str, before: float) -> list[str]:
        """Return the constants that give the port's array if the module takes them over, which it
        keeps, or [].
        """
        left = self.constants.left()
        groups = [[path] for path in left]
        if len(left) > 1:
            groups.append(left)
        for paths in groups:
            for path in paths:
                self.constants.take_over(path)
            self._keep(paths)
            allowed = min(_LOOSE, max(1, _PART * before))
            if self._try(chosen, None, name) <= allowed:
                return paths
            for path in paths:
                self.constants.put_back(path)
            self._keep(paths)
        return []

    def _keep(self, paths: Sequence[str]) -> None:
        """Let `_put_back` restore the present numbers of these buffers."""
        for path in {*paths} & {*self.buffers}:
            self.buffers[path] = self.module.get_buffer(path).clone()

    def _first_difference(self, chosen: Chosen) -> tuple[Calls, str, Any]:
        """Run the module, and record the calls until the first layer that differs (`_run`)."""
        if self.wanted.stage != LOSS or self.outputs is not None:
            return self._run(chosen, log=True)
        run, name, value = self._run(chosen, log=True, whole=True)
        # a loss that needs gradients, or draws random numbers, is computed with the whole net
        with contextlib.suppress(Exception):
            alone = self._run(chosen, log=True)
            wanted = self.wanted.convert(value)[LOSS.name]
            loss = alone[2].detach().numpy()
            if np.allclose(loss, wanted, _LEAST, 0):
                return alone
        self.outputs = None
        return run, name, value

    def _run(
        self,
        chosen: Chosen,
        base: Calls | None = None,
        name: str | None = None,
        log: bool = False,
        whole: bool = False,
    ) -> tuple[Calls, str, Any]:
        """Run the module with the changes `chosen`, and stop after the layer `name`.

        If `name` is None, stop after the first layer that differs. Returns the calls, the name of
        the last layer, and the layer's output. If no layer ends the run, the layer's name is "",
        and the output is the result of the run. If only the loss has to be computed, which `whole`
        forbids, the result is the loss.
        """
        wanted = self.wanted
        loss_only = self.outputs is not None and not whole
        backward = wanted.stage in (LOSS, GRADIENTS) and not loss_only
        kinds = gradient_changes if wanted.stage == GRADIENTS else changes
        with contextlib.ExitStack() as stack:
            if not backward:
                stack.enter_context(torch.no_grad())
            stack.enter_context(torch.random.fork_rng())
            # `torch.manual_seed` seeks GPUs: a quarter of a small net's time
            torch.default_generator.manual_seed(0)
            self._put_back()
            run = Calls(kinds, chosen, base, self.names, log, self.until, self.solved)
            if loss_only:
                run.count = run.of_forward = self.before_loss
                outputs = torch.utils._pytree.tree_map(_copy, self.outputs)
                with run:
                    return run, "", self.loss(outputs)
            stopped = list[tuple[str, Any]]()
            for handle in self._hooks(run, name, stopped):
                stack.callback(handle.remove)
            try:
                with run:
                    if backward:
                        return run, "", self.backward()
                    return run, "", self.forward(wanted.stage == TRAIN_FORWARD)
            except _DoneError:
                return run, *stopped[0]

    def _hooks(self, run: Calls, name: str | None, stopped: list[tuple[str, Any]]) -> list[Any]:
        """Register hooks that record what layers compute, and end the run (`_run`). Return the
        hooks' handles.
        """
        wanted, counts = self.wanted, defaultdict[str, int](int)

        def hook(title: str) -> Callable[..., None]:
            def after(layer: Any, inputs: Any, output: Any) -> None:
                counts[title] += 1
                call = title_of(title, counts[title] - 1)
                tensors = (leaf for _, leaf in leaves(output) if isinstance(leaf, torch.Tensor))
                first = next(tensors, None)
                other = name is not None and name != call
                if call not in wanted.layers or first is None or other:
                    return
                if name is not None or self._error(call, first) > 1:
                    stopped.append((call, first))
                    raise _DoneError
                run.produced(first, set())

            return after

        def given(layer: Any, inputs: Any, named: Any) -> None:
            arrays = [leaf for _, leaf in leaves((inputs, named)) if is_float(leaf)]
            run.others += [(f"input {index}", leaf) for index, leaf in enumerate(arrays)]

        def done(layer: Any, inputs: Any, outputs: Any) -> None:
            run.of_forward = run.count
            if wanted.stage == LOSS and run.log:
                self.outputs = torch.utils._pytree.tree_map(_copy, outputs)
                self.before_loss = run.count

        handles = [
            self.module.register_forward_pre_hook(given, with_kwargs=True),
            self.module.register_forward_hook(done),
        ]
        seen = wanted.layers if name is None else [name] if name else []
        for title in {title.partition(" (")[0] for title in seen}:
            handles.append(self.module.get_submodule(title).register_forward_hook(hook(title)))
        return handles

    def _put_back(self) -> None:
        """Restore the buffers, because runs in training mode change them."""
        with torch.no_grad():
            for name, kept in self.buffers.items():
                if (buffer := self.module.get_buffer(name)).shape == kept.shape:
                    buffer.copy_(kept)

    def _error(self, name: str, value: Any) -> float:
        """Return the error of an output, divided by the largest allowed error.

        The name "" means the final results.
        """
        if name:
            return _excess(value, *self.wanted.layers[name])
        if self.wanted.stage == LOSS and isinstance(value, torch.Tensor):
            loss, rounding = self.wanted.results[LOSS.name]
            return _excess(value.reshape(loss.shape), loss, rounding)
        arrays = self.wanted.convert(value)
        floor = 1e-3 * math.hypot(*(norm(array) for array, _ in self.wanted.results.values()))
        results = self.wanted.results.items()
        return max(
            (
                _excess(arrays[key], *port, floor) if key in arrays else math.inf
                for key, port in results
            ),
            default=0,
        )

    def _fit(self, chosen: Chosen, run: Calls, name: str, value: Any, known: set[str]) -> Chosen:
        """Find one or two changes that give the port's array.

        A change applies to one or more calls of a function.
        """
        before, level = self._error(name, value), [(Chosen(), run, value)]
        for count in range(2):
            closer: dict[str, tuple[float, Chosen]] = {}
            for first, logged, value in level:
                options = self._options(logged, name, value)
                # The changes in `known` are tried first.
                for option in sorted(
                    options, key=lambda option: not known.issuperset(option.values())
                ):
                    if time.perf_counter() > self.until:
                        return {}
                    error = self._try({**chosen, **first, **option}, logged, name)
                    if error <= 1:
                        return {**first, **option}
                    if error < (0.9 if self.outputs is None else _FARTHER) * before:
                        closer.setdefault(f"{error:.4g}", (error, {**first, **option}))
            least, best = min(closer.values(), key=lambda fit: fit[0], default=(math.inf, Chosen()))
            if least <= min(_LOOSE, _PART * before):
                return best
            if count == 0 and self.outputs is not None:
                scaled = self._scaled_term(chosen, run, value) or self._scaled_after(chosen, run)
                if scaled:
                    return scaled
            level = []
            beam = _BEAM if self.outputs is None else _BEAM_OF_LOSS
            for _, first in sorted(closer.values(), key=lambda fit: fit[0])[:beam]:
                with contextlib.suppress(Exception):
                    logged, _, value = self._run({**chosen, **first}, name=name, log=True)
                    level.append((first, logged, value))
        return {}

    def _options(self, run: Calls, name: str, value: Any) -> list[Chosen]:
        """Return the changes to try, in order.

        Changes that keep a call's output are tried only if gradients differ.
        """
        if name or self.wanted.stage not in (LOSS, GRADIENTS):
            region = run.region(value)
        else:
            # The outputs agree, so a difference of the loss comes from calls after the forward
            # pass.
            region = [
                n
                for n in reversed(run.calls)
                if n > run.of_forward or self.wanted.stage == GRADIENTS
            ]
        singles, alike = list[Chosen](), defaultdict[tuple[str, str], Chosen](dict)
        for number in region:
            with contextlib.suppress(Exception):  # the function was called with unusual arguments
                for title, changed in run.changes(run.calls[number]):
                    if time.perf_counter() > self.until:
                        return []
                    with contextlib.suppress(Exception):  # the change does not fit this call
                        if number not in run.chosen and self._has_effect(
                            run.calls[number].out, changed()
                        ):
                            singles.append({number: title})
                            alike[run.calls[number].name, title][number] = title
        # A wrong order of axes is rather in the call that orders them than in a reshape behind it.
        singles.sort(key=lambda single: _reshapes_permuted(run, *single))
        together = [group for group in alike.values() if len(group) > 1]
        first, last = list[Chosen](), list[Chosen]()
        for option in singles:
            (title,) = option.values()
            options = last if _is_late(title) else first
            options.append(option)
        return [*first, *together, *last]

    def _has_effect(self, old: Any, new: Any) -> bool:
        pairs = zip(*(torch.utils._pytree.tree_leaves(tree) for tree in (old, new)), strict=True)
        return self.wanted.stage == GRADIENTS or any(
            a.shape != b.shape or not torch.equal(a, b) for a, b in pairs
        )

    def _try(self, chosen: Chosen, base: Calls | None, name: str) -> float:
        try:
            _, _, value = self._run(chosen, base, name)
            error = self._error(name, value)
            if self.outputs is not None and error <= _LOOSE:  # of the loss; now the gradients
                _, _, value = self._run(chosen, name=name, whole=True)
                error = max(error, self._error(name, value))
            return error
        except Exception:  # the changed result may not fit the calls that follow
            return math.inf

    def _scaled_term(self, chosen: Chosen, run: Calls, value: Any) -> Chosen:
        """Find a number in the computation of the loss that is a multiple in the port.

        The factor is the one that gives the port's loss. It counts if it gives the port's
        gradients, too.
        """
        port = float(self.wanted.results[LOSS.name][0].reshape(()))
        own = float(value)
        fits: list[tuple[bool, Chosen]] = []
        for number in sorted(run.calls, reverse=True):
            call = run.calls[number]
            if number in chosen or call.name == "reshape":
                continue
            if not is_float(call.out) or call.out.ndim:
                continue
            self.solved[number, _DOUBLED] = functools.partial(_times, 2.0)
            with contextlib.suppress(Exception):
                _, _, doubled = self._run({**chosen, number: _DOUBLED}, run, "")
                factor = rounded(1 + (port - own) / (float(doubled) - own))
                if factor == 1:  # so near to 1 that it explains nothing
                    continue
                title, is_known = words_of_term(call, factor, _shapes(run))
                self.solved[number, title] = functools.partial(_times, factor)
                if self._try({**chosen, number: title}, run, "") <= 1:
                    fits.append((not is_known, {number: title}))
        _, best = min(fits, key=lambda fit: fit[0], default=(True, Chosen()))
        return best

    def _scaled_after(self, chosen: Chosen, run: Calls) -> Chosen:
        """Find something that the port leaves out of the loss, such as a mask, and then a number
        that is a multiple (`_scaled_term`).
        """
        for option in self._options(run, "", None):
            (title,) = {*option.values()}
            if len(option) > 1 or not title.endswith((FACTOR_LEFT_OUT, OF_THE_MASK)):
                continue
            with contextlib.suppress(Exception):
                changed = {**chosen, **option}
                logged, _, value = self._run(changed, name="", log=True)
                term = self._scaled_term(changed, logged, value)
                if term:
                    return {**option, **term}
        return {}


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _times(factor: float, call: Call) -> Any:
    return factor * call.out


def _reshapes_permuted(run: Calls, number: int) -> bool:
    """Return whether a call reshapes what a call returns that orders axes."""
    if run.calls[number].kind not in ("reshape", "flatten"):
        return False
    before = [run.calls[parent].kind for parent in run.parents[number] if parent in run.calls]
    return not {"permute", "transpose", "t"}.isdisjoint(before)


def _is_late(title: str) -> bool:
    """Return whether a change is of a kind with many changes, which are tried last."""
    return AS_ARGUMENT in title or title.startswith(PERMUTED)


def _shapes(run: Calls) -> list[torch.Size]:
    """Return the shapes that the calls of a loss compute, without repetition."""
    shapes = []
    for call in run.calls.values():
        for value in (*call.args, call.out):
            if is_float(value):
                shapes.append(value.shape)
    return list(dict.fromkeys(shapes))


def _add(causes: list[_Cause], fit: Chosen, run: Calls) -> None:
    """Add the changes of one fit to the causes: a cause of its own, or more calls of a known one."""
    made: _Cause = {}
    for number in sorted(fit):
        made.setdefault(fit[number], []).append(run.places[number])
    same = next((cause for cause in causes if cause.keys() == made.keys()), None)
    if same is not None:
        for title, places in made.items():
            same[title] += places
    elif made:
        causes.append(made)


def _line(cause: _Cause) -> str:
    """Return a line for a cause. Changes that only together give the port's result are joined."""
    parts = []
    before = ""
    for title, (place, *others) in cause.items():
        more = f" (and {len(others)} more calls)" if others else ""
        if len(cause) == 1:
            return f"{place}: {title} in the port{more}"
        if place != before:
            title = f"{place}: {title}"
        parts.append(title + more)
        before = place
    return ", then ".join(parts) + " in the port"


def _results(wanted: Wanted) -> str:
    """Return words for the results that a stage compares."""
    return {LOSS: "the loss", GRADIENTS: "a gradient"}.get(wanted.stage, "the net's output")


def _excess(value: Any, port: np.ndarray, rounding: float, floor: float = 0.0) -> float:
    """Return the relative error of `value` against `port`, divided by the largest error that counts
    as a fit.
    """
    a = (
        value.detach().double().numpy()
        if isinstance(value, torch.Tensor)
        else np.asarray(value, np.float64)
    )
    if a.shape != port.shape:
        return math.inf
    finite = np.isfinite(port)
    if not finite.any():  # any change that overflows would fit
        return 0.0 if np.array_equal(a, port, equal_nan=True) else math.inf
    # kernels differ in which of NaN and infinity they give
    if not np.array_equal(np.isfinite(a), finite):
        return math.inf
    return (
        norm((a - port)[finite])
        / max(norm(port[finite]), floor, 1e-30)
        / max(_LEAST, _FITS * rounding)
    )
