"""The updates of the reference in float32, and the further runs that show how far rounding moves
their results: in float64, under noise, and with other decisions.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record import rounding
from resnet_fn.parity.record.measuring import Drifting, Measuring
from resnet_fn.parity.record.side import Measured
from resnet_fn.parity.record.torch_decisions import Deciding, Decisions
from resnet_fn.parity.record.torch_modes import Noise, in_mode
from resnet_fn.parity.record.torch_module import array_of, state
from resnet_fn.parity.record.torch_run import TorchRun, Training, load
from resnet_fn.parity.record.torch_step import TorchStepper
from resnet_fn.parity.record.updates import UNWATCHED, Watch, record_run, record_updates
from resnet_fn.parity.trace.constants import draw_constants, hides_its_use, words_of_constants
from resnet_fn.parity.trace.data import Changing, Rounding, Run, Ties
from resnet_fn.parity.trace.difference import are_integers
from resnet_fn.parity.trace.limits import ONLY_ROUNDING
from resnet_fn.parity.trace.stages import GRADIENTS, marked
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.runtime.malloc import release_freed

_NOISY_RUNS = 4

# Seeds and scales of noise that finds ties. Noise of both signs moves an operand to both sides, and
# the port's rounding may be larger than one unit.
_NOISE_OF_TIES = [(0, 16.0), (0, -16.0), (1, 16.0), (1, -16.0)]


class ReferenceRuns:
    """Makes the updates once, and then again in other ways.

    Call `updates` first, and `measured` only once: it forgets the decisions of the updates. The
    port's counterpart is `PortRuns` (mindspore_updates.py).

    Args:
        module: the reference without dropout, which is copied for each run.
        training: how it is trained.
        roles: the fields of a `Trace` for what is trained, tied or saved.
        initial: arrays that the state from before the updates may share.
        notes: gets a line for each measurement that fails.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        training: Training,
        *,
        roles: Mapping[str, Any],
        initial: Arrays,
        notes: list[str],
    ) -> None:
        self._module, self._training = module, training
        self._plan, self._roles, self._initial = training.plan, roles, initial
        self._notes = notes
        # the precision in which rounding is measured
        self._rounding_precision = training.plan.rounding_precision
        # Set by `updates`:
        self._masked: torch.nn.Module | None = None  # the reference with dropout masks
        self._drawn = Arrays()  # random numbers for constant arrays
        self._not_drawn = list[str]()  # a line for such numbers that the reference does not take
        self._rejects = dict[str, str]()  # why a run fails with them, by precision
        self._decisions = Decisions()  # of the updates, until `measured` forgets them
        self._idle_numbers = list[str]()  # lines on attributes that move and change no output
        self._recorded = self._exact = Run({}, {}, [])  # the runs in float32 and in float64
        self._against_float64 = Rounding()  # how far they are apart

    def updates(self, masked: torch.nn.Module | None, mode: AbstractContextManager[Any]) -> Run:
        """Make the updates in float32, inside the context `mode`, and in float64 for `measured`.

        `masked` is the reference with dropout masks, or None.
        """
        self._masked = masked
        self._drawn = self._draw_constants()
        self._recorded = self._in_float32(mode)
        self._exact, self._against_float64 = self._in_float64(self._recorded)
        self._forget_failing_constants(self._recorded, self._exact)
        return self._recorded

    def _in_float32(self, mode: AbstractContextManager[Any]) -> Run:
        """Make the updates that are compared, and note their decisions and what they move."""
        with mode, Deciding(self._decisions.note):
            stepper = self._stepper("float32", finds_moved=True)
            run = self._run_of(stepper, "float32")
        run.moved = stepper.find_moved()
        self._idle_numbers = stepper.idle_numbers
        return run

    def _in_float64(self, run: Run) -> tuple[Run, Rounding]:
        """Make the updates in float64 with the decisions of `run`, and return how far the rounded
        ones are from them.
        """
        precision = self._rounding_precision
        rounded = run if precision == "float32" else self._run(precision)
        measuring = Measuring(rounded)
        self._decisions.restart()
        with Deciding(self._decisions.kept):
            exact = self._run("float64", measuring)
        return exact, measuring.rounding

    def _forget_failing_constants(self, run: Run, exact: Run) -> None:
        """Leave out the runs with random numbers for constant arrays if one of both fails: without
        rounding, a right port may differ.
        """
        if len(run.drawn) == len(exact.drawn):
            return
        failed = "float64" if run.drawn else "float32"
        run.drawn, exact.drawn = [], []
        constants = words_of_constants(self._drawn)
        self._not_drawn.append(f"{constants}: it fails in {failed} ({self._rejects[failed]})")

    def _run(self, precision: str, measuring: Measuring | None = None) -> Run:
        """Make all updates, and the further passes of `record_run`."""
        measure = measuring.gradients if measuring else None
        with in_mode(precision):
            stepper = self._stepper(precision, measure=measure)
            return self._run_of(stepper, precision, measuring or UNWATCHED)

    def _run_of(self, stepper: TorchStepper, precision: str, watch: Watch = UNWATCHED) -> Run:
        run = record_run(stepper, self._plan, self._plan.rates, {}, self._drawn, watch)
        self._rejects[precision] = stepper.rejects
        return run

    def _stepper(self, precision: str, **options: Any) -> TorchStepper:
        release_freed()  # arrays of another precision do not fit in what the last run has freed
        return TorchStepper(
            self._module,
            self._training,
            precision,
            masked=self._masked,
            known=self._initial,
            **options,
        )

    def _draw_constants(self) -> Arrays:
        """Return random numbers for constant arrays, if the reference runs with them."""
        roles = self._roles
        unsaved = {name for name, is_saved in roles["buffers"].items() if not is_saved}
        arrays = state(self._module)
        start = {name: array for name, array in arrays.items() if name not in unsaved}
        for positive in (False, True):
            drawn = draw_constants(start, roles["trainable"], roles["tied"], positive)
            why = self._why_rejected(start, drawn)
            if not why:
                return drawn
        self._not_drawn.append(f"{words_of_constants(drawn)}: {why}")
        return {}

    def _why_rejected(self, start: Arrays, drawn: Arrays) -> str:
        """Return why random numbers for constant arrays are not used, or "" if they are."""

        def outputs(drawn: Arrays) -> list[np.ndarray]:
            run = TorchRun(self._module, self._training, "float32").with_constants(start, drawn)
            results = (run.eval_outputs, *run.train_outputs)
            return [array for arrays in results for array in arrays.values()]

        if not drawn:
            return ""
        try:
            random = outputs(drawn)
        except Exception as error:
            return f"the reference rejects them ({words_of(error)})"
        if all(np.isfinite(array).all() for array in random):
            return ""
        # a net may compute infinities of itself, for example in masked places
        usual = outputs({})
        if [array.shape for array in random] != [array.shape for array in usual]:
            return "its outputs have another shape"
        pairs = zip(random, usual, strict=True)
        finite = (np.isfinite(array) | ~np.isfinite(before) for array, before in pairs)
        return "" if all(map(np.all, finite)) else "its outputs are not finite"

    def measured(self) -> Measured:
        """Return the rounding of the updates, what ties change, and which integers change."""
        measured = self._rounding(self._recorded)
        ties = self._ties(self._recorded)
        return Measured(measured, ties, self._changing(self._recorded))

    def _rounding(self, run: Run) -> Rounding:
        """Return the error of each array against float64 or, if larger, a multiple of its change by
        noise.
        """
        without_further_runs = dataclasses.replace(run, later=[], dropped=[], drawn=[])
        noisy = (
            self._noisy_updates(without_further_runs)
            if self._rounding_precision == "float32"
            else []
        )
        measured = self._against_float64
        # Adam scales even a gradient that is only rounding to full size. Such a bias drifts, and so
        # do statistics.
        only_rounding = max(measured[GRADIENTS].values(), default=0.0) >= ONLY_ROUNDING
        in_half = self._rounding_precision == "float16"
        chaotic = not in_half and rounding.is_chaotic(measured, run)
        drifts = not in_half and self._plan.optimizer.is_adaptive and only_rounding
        if not chaotic:  # else the comparison may end before the last update
            measured = rounding.without_updates(measured)
        moved = (
            self._drift(run, without_further_runs, measured, chaotic) if drifts or chaotic else []
        )
        return rounding.with_noise(measured, noisy + moved, moved if chaotic else ())

    def _noisy_updates(self, without_further_runs: Run) -> list[Rounding]:
        """Return the changes of the arrays of update 1 by noise.

        A run that fails under noise counts for nothing.
        """
        noisy, failed = list[Rounding](), list[str]()
        for seed in range(_NOISY_RUNS):
            try:
                with Noise(seed, self._decisions):
                    noisy_update = self._first_update()
            except Exception as error:  # noise may take a probability beyond 1
                failed.append(words_of(error))
                continue
            changes = rounding.rounding(noisy_update, without_further_runs, without_further_runs)
            noisy.append(rounding.without_scaled(changes, self._plan.optimizer))
            del noisy_update  # before the next one needs as much memory
        if failed:
            self._notes.append(
                f"rounding is measured with {len(noisy)} of {_NOISY_RUNS} runs under noise, because "
                f"the reference failed in the others ({failed[0]})"
            )
        return noisy

    def _first_update(self) -> Run:
        """Make update 1 without what later updates add to."""
        run = record_updates(
            self._stepper(self._rounding_precision), self._plan, self._plan.rates, {}, updates=1
        )
        return dataclasses.replace(run, average={}, last_outputs={})

    def _drift(
        self, run: Run, without_further_runs: Run, measured: Rounding, chaotic: bool
    ) -> list[Rounding]:
        """Return the drift of weights and statistics by noise, in one run, or in two if the
        training is chaotic; [] if training fails then.
        """
        weights = {name: run.after[-1][name] for name in run.gradients}  # both sides get these
        trainable, drifts = self._roles["trainable"], list[Rounding]()
        try:
            for seed in range(2 if chaotic else 1):
                watch = Drifting(without_further_runs, chaotic)
                with Noise(seed):
                    stepper = self._stepper(self._rounding_precision)
                    moved = record_updates(
                        stepper, self._plan, self._plan.rates, weights, watch=watch
                    )
                drift = rounding.drift(
                    moved,
                    without_further_runs,
                    measured,
                    trainable,
                    chaotic=chaotic,
                    of_updates=watch.of_updates,
                )
                drifts.append(drift)
                del stepper, moved  # before the next ones need as much memory
            return drifts
        except Exception as error:
            self._notes.append(
                "drift is not measured, because training the reference under noise failed "
                f"({words_of(error)})"
            )
            return []

    def _ties(self, run: Run) -> Ties | None:
        """Return what changes if the ties that noise has met so far are decided otherwise."""
        decisions, self._decisions = self._decisions, Decisions()  # they may take much memory
        if not decisions.can_tie or self._rounding_precision != "float32":
            return None
        try:
            for seed, scale in _NOISE_OF_TIES:  # so far, noise was in the first update only
                with Noise(seed, decisions, scale):
                    self._run(self._rounding_precision)
            if not decisions.has_ties:
                return None
            decisions.restart()
            with Deciding(decisions.flipped):
                flipped = self._run(self._rounding_precision)
        except Exception as error:
            self._notes.append(
                "ties are not measured, because the reference failed under noise, or with other "
                f"decisions ({words_of(error)})"
            )
            return None
        return Ties(decisions.lines, rounding.rounding(flipped, run, run), flipped)

    def _changing(self, run: Run) -> Changing:
        """Return which elements of integers and booleans change in float64, under noise, or in half
        precision.

        A batch runs under noise only if there are such outputs: other arrays have a rounding.
        """
        others = [self._exact]
        if self._rounding_precision == "float16":
            others.append(self._run("float16"))
        elif any(map(are_integers, [*run.eval_outputs.values(), *run.train_outputs[0].values()])):
            others += self._all_batches_again(run)
        return rounding.changing(run, others)

    def _all_batches_again(self, run: Run) -> list[Run]:
        """Run all batches in float64 and under noise, with the weights before any update, and the
        first one with those after the updates. Decisions are those of these runs.
        """
        modes = [("float64", in_mode("float64"))]
        modes += [("float32", Noise(seed)) for seed in range(_NOISY_RUNS)]
        runs, failed = list[Run](), list[str]()
        for precision, mode in modes:
            try:
                with mode:
                    runs.append(self._all_batches(run, precision))
            except Exception as error:
                failed.append(words_of(error))
        if failed:
            self._notes.append(
                f"which integers rounding changes is measured with {len(runs)} of {len(modes)} further "
                f"runs, because the reference failed in the others ({failed[0]})"
            )
        return runs

    def _all_batches(self, run: Run, precision: str) -> Run:
        def copy() -> TorchRun:
            return TorchRun(self._module, self._training, precision)

        first, *later = (copy().on_batch(batch, run.start) for batch in self._plan.batches)
        last = copy()
        load(last.module, run.after[-1])
        first.last_outputs = last.evaluate(self._plan.batches[0][0])
        drawn = list[Run]()
        if run.drawn:
            with contextlib.suppress(Exception):  # with noise, these numbers alone may fail
                drawn.append(copy().with_constants(run.start, self._drawn))
        for further_run in (first, *later, *drawn):
            further_run.gradients = {}  # they take much memory, and integers alone are compared
        return dataclasses.replace(first, later=later, drawn=drawn)

    @property
    def not_exercised(self) -> list[str]:
        """A line for each constant array that has no random numbers in any run, and for each
        number in an attribute that moves evenly and changes no output, or that could not be tried.
        """
        saved, buffers = self._module.state_dict(), dict(self._module.named_buffers())
        arrays = {name: array_of(buffers[name]) for name in buffers if name not in saved}
        unsaved = [
            f"{name}: always {float(array.flat[0]):g}"
            for name, array in arrays.items()
            if hides_its_use(array)
        ]
        return [*self._not_drawn, *unsaved, *self._idle_numbers]

    def changes(self) -> Rounding:
        """Return how far the updates are from the recorded ones if they are made again now."""
        measuring = Measuring(self._recorded)
        self._run("float32", measuring)
        return measuring.rounding

    def replace_masks(self, masked: torch.nn.Module) -> tuple[Run, Rounding]:
        """Make the update with dropout masks again, with others, and return it with its rounding.

        It takes the place of the recorded one, because `changes` makes the same updates again.
        """
        self._masked = masked

        def run(precision: str) -> Run:
            with in_mode(precision):
                stepper = TorchStepper(masked, self._training, precision)
                return record_updates(stepper, self._plan, self._plan.rates, {}, updates=1)

        made = run("float32")
        measured = made if self._rounding_precision == "float32" else run(self._rounding_precision)
        self._recorded = dataclasses.replace(self._recorded, dropped=[made])
        return made, marked(rounding.rounding(measured, run("float64")), masked=True)
