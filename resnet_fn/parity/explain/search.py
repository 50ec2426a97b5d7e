"""Search for the cause of a difference: change the reference's torch calls until they give the
port's result.
"""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from resnet_fn.config.hints import first_line
from resnet_fn.parity.explain.calls import Calls, Chosen, is_float
from resnet_fn.parity.explain.changes import OTHER, changes, gradient_changes
from resnet_fn.parity.trace.data import Wanted
from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.layer import title_of
from resnet_fn.parity.trace.stages import GRADIENTS, LOSS, TRAIN_FORWARD
from resnet_fn.parity.trace.tree import Arrays, leaves

_SECONDS = 10.0  # the most that a search takes

_FITS = 10.0  # a change fits if the remaining error is at most so many times the rounding

_LEAST = 2e-6  # an error that always fits, however small the rounding

_BEAM = 4  # so many of the best single changes are tried together with a second change

_CAUSES = 5  # the search ends after so many causes


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
        seconds: the longest time of a search.
    """

    def __init__(
        self,
        module: Any,
        forward: Callable[[bool], Any],
        backward: Callable[[], Arrays],
        seconds: float = _SECONDS,
    ) -> None:
        self.module, self.forward, self.backward, self.seconds = module, forward, backward, seconds
        self.names = {id(layer): name for name, layer in module.named_modules() if name}
        self.buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}

    def __call__(self, wanted: Wanted) -> list[str]:
        """Return a line for each change that gives the `wanted` arrays, and a line if the search
        stopped early.
        """
        self.wanted, self.until = wanted, time.perf_counter() + self.seconds
        chosen: Chosen = {}
        causes: dict[str, list[str]] = {}  # words of a change → places of its calls
        ended: list[str] = []
        while len(causes) < _CAUSES:
            try:
                run, name, value = self._run(chosen, log=True)
                fit = (
                    self._fit(chosen, run, name, value, set(causes))
                    if self._error(name, value) > 1
                    else {}
                )
            except TimeoutError:
                break
            except Exception as error:  # keeps the causes that were found before
                if not causes:
                    raise
                ended = [
                    f"the search for further causes failed ({type(error).__name__}: "
                    f"{first_line(error)})"
                ]
                break
            for number, words in fit.items():
                causes.setdefault(words, []).append(run.places[number])
            chosen |= fit
            if not fit:
                break
        more = {
            words: f" (and {len(places) - 1} more calls)" * (len(places) > 1)
            for words, places in causes.items()
        }
        lines = [
            f"{places[0]}: {words} in the port{more[words]}" for words, places in causes.items()
        ]
        if time.perf_counter() > self.until:
            ended = [f"the search for a cause stopped after {self.seconds:g} s"]
        return [*lines, *ended]

    def _run(
        self, chosen: Chosen, base: Calls | None = None, name: str | None = None, log: bool = False
    ) -> tuple[Calls, str, Any]:
        """Run the module with the changes `chosen`, and stop after the layer `name`.

        If `name` is None, stop after the first layer that differs. Returns the calls, the name of
        the last layer, and the layer's output. If no layer ends the run, the layer's name is "",
        and the output is the result of the run.
        """
        wanted = self.wanted
        of_loss = wanted.stage in (LOSS, GRADIENTS)
        counts, stopped, handles = defaultdict[str, int](int), list[tuple[str, Any]](), list[Any]()

        def hook(title: str) -> Callable[..., None]:
            def after(layer: Any, inputs: Any, output: Any) -> None:
                counts[title] += 1
                call = title_of(title, counts[title] - 1)
                first = next(
                    (leaf for _, leaf in leaves(output) if isinstance(leaf, torch.Tensor)), None
                )
                if (
                    call not in wanted.layers
                    or first is None
                    or (name is not None and name != call)
                ):
                    return
                if name is not None or self._error(call, first) > 1:
                    stopped.append((call, first))
                    raise _DoneError
                run.produced(first, set())

            return after

        with contextlib.nullcontext() if of_loss else torch.no_grad(), torch.random.fork_rng():
            # `torch.manual_seed` seeks GPUs: a quarter of a small net's time
            torch.default_generator.manual_seed(0)
            self._put_back()
            kinds = gradient_changes if wanted.stage == GRADIENTS else changes
            run = Calls(kinds, chosen, base, self.names, log, self.until)

            def given(layer: Any, inputs: Any, named: Any) -> None:
                arrays = [leaf for _, leaf in leaves((inputs, named)) if is_float(leaf)]
                run.others += [(f"input {index}", leaf) for index, leaf in enumerate(arrays)]

            seen = wanted.layers if name is None else [name] if name else []
            handles.append(self.module.register_forward_pre_hook(given, with_kwargs=True))
            handles.append(
                self.module.register_forward_hook(lambda *_: setattr(run, "of_forward", run.count))
            )
            for title in {title.partition(" (")[0] for title in seen}:
                handles.append(self.module.get_submodule(title).register_forward_hook(hook(title)))
            try:
                with run:
                    results = (
                        self.backward() if of_loss else self.forward(wanted.stage == TRAIN_FORWARD)
                    )
                return run, "", results
            except _DoneError:
                return run, *stopped[0]
            finally:
                for handle in handles:
                    handle.remove()

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
        arrays = self.wanted.convert(value)
        floor = 1e-3 * math.hypot(*(norm(array) for array, _ in self.wanted.results.values()))
        results = self.wanted.results.items()
        return max(
            (
                _excess(arrays[one], *port, floor) if one in arrays else math.inf
                for one, port in results
            ),
            default=0,
        )

    def _fit(self, chosen: Chosen, run: Calls, name: str, value: Any, known: set[str]) -> Chosen:
        """Find one or two changes that give the port's array.

        A change applies to one or more calls of a function.
        """
        before, level = self._error(name, value), [(Chosen(), run, value)]
        for _ in range(2):
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
                    if error < 0.9 * before:
                        closer.setdefault(f"{error:.4g}", (error, {**first, **option}))
            level = []
            for _, first in sorted(closer.values(), key=lambda one: one[0])[:_BEAM]:
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
                for words, changed in run.changes(run.calls[number]):
                    if time.perf_counter() > self.until:
                        return []
                    with contextlib.suppress(Exception):  # the change does not fit this call
                        if number not in run.chosen and self._has_effect(
                            run.calls[number].out, changed()
                        ):
                            singles.append({number: words})
                            alike[run.calls[number].name, words][number] = words
        together = [group for group in alike.values() if len(group) > 1]
        last = [one for one in singles if OTHER in next(iter(one.values()))]
        return [*(one for one in singles if one not in last), *together, *last]

    def _has_effect(self, old: Any, new: Any) -> bool:
        pairs = zip(*(torch.utils._pytree.tree_leaves(one) for one in (old, new)), strict=True)
        return self.wanted.stage == GRADIENTS or any(
            a.shape != b.shape or not torch.equal(a, b) for a, b in pairs
        )

    def _try(self, chosen: Chosen, base: Calls, name: str) -> float:
        try:
            _, _, value = self._run(chosen, base, name)
            return self._error(name, value)
        except Exception:  # the changed result may not fit the calls that follow
            return math.inf


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
