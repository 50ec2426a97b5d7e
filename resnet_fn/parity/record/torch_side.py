"""The PyTorch side: the reference, with what trains it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from resnet_fn.config.hints import first_line
from resnet_fn.parity.record import rounding
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.common import what_failed
from resnet_fn.parity.record.measuring import Measuring
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.side import Dropped, Only
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_decisions import Deciding, Decisions
from resnet_fn.parity.record.torch_layers import (
    layers_of,
    layers_with_rounding,
    probes_of,
    roles_of,
)
from resnet_fn.parity.record.torch_modes import Limits, Noise, in_float64
from resnet_fn.parity.record.torch_module import (
    first_call,
    initialise,
    inputs_of_layer,
    layer_by_layer,
    map_tensors,
    outputs_of,
    prepare_reference,
    state,
    tensors,
    uncompiled,
    with_masks,
)
from resnet_fn.parity.record.torch_recipe import loss_of
from resnet_fn.parity.record.torch_source import Rerun, TorchSource
from resnet_fn.parity.record.torch_step import (
    Loss,
    MakeOptimizer,
    TorchRun,
    TorchStepper,
    load,
    on_batch,
    optimizer_alone,
    scalar,
    settings_of_optimizer,
)
from resnet_fn.parity.record.torch_ties import LEVELS
from resnet_fn.parity.record.updates import UNWATCHED, Watch, record_run, record_updates
from resnet_fn.parity.trace.constants import draw_constants, hides_its_use, words_of_constants
from resnet_fn.parity.trace.data import (
    Changing,
    ParameterSettings,
    Probes,
    Rounding,
    Run,
    Ties,
    Trace,
)
from resnet_fn.parity.trace.difference import are_integers
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer, title_of
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.limits import CEILING, ONLY_ROUNDING
from resnet_fn.parity.trace.plan import MEAN_SIZE, Plan
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import Masked
from resnet_fn.parity.trace.stages import GRADIENTS, marked
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree

_NOISY_RUNS = 4

# Seeds and scales of noise that finds ties. Noise of both signs moves an operand to both sides, and
# the port's rounding may be larger than one unit.
_NOISE_OF_TIES = [(0, 16.0), (0, -16.0), (1, 16.0), (1, -16.0)]


class TorchSide:
    """A torch module, copies of which are trained.

    The copies have no dropout, and `prepare_reference` randomises their initial statistics and
    parameters.

    Args:
        module: the reference, which is not changed.
        plan: the updates.
        loss: a function (outputs, labels) → scalar; by default the plan's.
        make_optimizer: returns an optimizer of a module; by default the plan's.
        build: makes the module again, to record the initial values of several modules.
    """

    is_reference, workers = True, 1
    _recorded: Run  # the updates in float32

    def __init__(
        self,
        module: torch.nn.Module,
        plan: Plan,
        loss: Loss | None = None,
        make_optimizer: MakeOptimizer | None = None,
        build: Callable[[], torch.nn.Module] | None = None,
    ) -> None:
        # Arrays are copied, because a module may write into its inputs.
        batches = [map_tree(np.array, tuple(batch)) for batch in plan.batches]
        self.plan = dataclasses.replace(plan, batches=batches)
        self.framework = f"PyTorch {torch.__version__.partition('+')[0]}"
        self.notes: list[str] = []
        self.unread: set[str] = set()
        self._module, self._custom_loss = uncompiled(module), loss
        self._make_optimizer, self._build = make_optimizer, build
        # the precision in which rounding is measured
        self._rounded = "float16" if plan.precision == "fp16" else "float32"
        self._limits, self._masked = Limits(), None
        self._decisions = Decisions()  # of the updates
        self._of_relus: list[float] = []  # the rounding of the input of each ReLU
        self._evaluates_as_built = False
        self._drawn, self._not_drawn = Arrays(), list[str]()

    def session(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that puts torch's generator back."""
        return torch.random.fork_rng()

    def state(self) -> Arrays:
        """Return the initial parameters and statistics."""
        self._initial = self._built(self._module)
        return self._initial

    def _built(self, module: torch.nn.Module) -> Arrays:
        module = uncompiled(module)
        initialise(module, self.plan.batches[0][0])
        return state(module)

    def start(self, like: Like | None) -> None:
        """Copy the module as it was built, and choose the loss. A reference takes over nothing."""
        self._reference = copied(self._module).float()
        trains = any(one.requires_grad for one in self._module.parameters())
        if not (trains or self._custom_loss or self._make_optimizer):
            loss = dataclasses.replace(self.plan.loss, name=MEAN_SIZE)
            self.plan = dataclasses.replace(self.plan, loss=loss)
            self.notes.append(
                "nothing is trained in the reference, so only forward passes are compared; the "
                "loss is the mean size of the outputs"
            )
        outputs = first_call(self._reference, self.plan.first[0], True)
        self._loss = self._custom_loss or loss_of(self.plan.loss, outputs)
        layers = dict(self._reference.named_modules())
        self._rates = Rates(layers)
        with self._rates.off(layers):
            changed = prepare_reference(self._reference, self.plan.batches[0][0], self.plan.seed)
        self.notes += [changed] if changed else []
        if self._make_optimizer:  # making it may freeze or unfreeze parameters
            trained = copied(self._reference)
            self._make_optimizer(trained)
            for name, one in self._reference.named_parameters():
                one.requires_grad_(trained.get_parameter(name).requires_grad)

    def evaluate_as_built(self) -> None:
        """From now on, evaluate with the dropout rates of the module as it was built."""
        self._evaluates_as_built = True

    def _rates_in(self, module: torch.nn.Module, train: bool) -> contextlib.AbstractContextManager:
        """Return a context in which a copy has the dropout rates of this mode."""
        if train or not self._evaluates_as_built:
            return contextlib.nullcontext()
        return self._rates.as_built(dict(module.named_modules()))

    def _evaluating(self, module: torch.nn.Module) -> contextlib.AbstractContextManager:
        return self._rates_in(module, False)

    def _training(self, module: torch.nn.Module) -> contextlib.AbstractContextManager:
        return self._rates.off(dict(module.named_modules()))

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """From now on, run a copy without dropout."""
        self._rates.switch_off(dict(self._reference.named_modules()))
        yield self._rates.dropped

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant."""
        return roles_of(self._module) | {"trainable": roles_of(self._reference)["trainable"]}

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the outputs of a copy."""
        with self._rates_in(self._reference, train):
            return first_call(self._reference, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name."""
        self.unread |= {*unread(outputs)}
        return outputs_of(outputs)

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs, which is computed in their precision, as float64."""
        try:
            value = self._loss(outputs, tensors(labels, torch.float32))
        except Exception as error:
            given, fix = (
                {"outputs": outputs_of(outputs), "labels": labels},
                "give labels that it takes, or --loss",
            )
            raise what_failed("loss of the reference", given, error, fix) from error
        return scalar(value).detach().double().numpy()

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one layer in training mode, with the module's dropout."""
        with self._rates.as_built(dict(self._reference.named_modules()), only):
            layer = copied(self._reference.get_submodule(name)).train()
        if inputs is None:
            given = inputs_of_layer(self._reference, name, self.plan.first[0])
        else:
            given = (torch.from_numpy(inputs),), {}

        def run() -> np.ndarray:
            args, kwargs = map_tensors(torch.Tensor.clone, given)
            with torch.no_grad(), layer_by_layer():
                outputs = outputs_of(copied(layer)(*args, **kwargs))
            return next(iter(outputs.values()))

        return run

    def layers(self, mode: str) -> list[Layer]:
        """Return the executions of layers, with the rounding of their inputs and outputs."""
        module = self._masked if mode == "dropout" and self._masked else self._reference
        inputs, train = self.plan.first[0], mode != "eval"
        with self._rates_in(module, train):
            layers, of_relus = layers_with_rounding(module, inputs, train, self._rounded)
        if mode == "train":
            finite = [error for error in of_relus if error < CEILING]
            self._of_relus = [min(error, max(finite, default=0.0)) for error in of_relus]
        return layers

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers."""
        return layers_of(self._reference, self.plan.first[0], True)

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run a copy and its layers on probes, because a layer may store its inputs."""
        module = copied(self._reference)
        with self._limits, self._evaluating(module):
            return probes_of(module, self.plan.first[0], executions, self._training)

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the optimizer of a copy."""
        return settings_of_optimizer(self._reference, self.plan, self._make_optimizer)

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the optimizer of a copy on random weights and gradients."""
        with torch.random.fork_rng():  # an optimizer may draw random numbers
            return optimizer_alone(self._reference, self.plan, self._make_optimizer)

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """Let a copy multiply by masks in the further update with dropout."""
        self._masks = masks
        self._masked = with_masks(self._reference, masks) if masks else None
        yield

    def _with_fewer_masks(self, left: Sequence[str]) -> Masked:
        """Return the update with masks (`Source.with_fewer_masks`)."""
        masks = {
            name: [
                np.ones_like(mask) if title_of(name, call) in left else mask
                for call, mask in enumerate(calls)
            ]
            for name, calls in self._masks.items()
        }
        self._masked = with_masks(self._reference, masks)
        given = (self.plan, self._loss, self._make_optimizer)

        def run(precision: str) -> Run:
            with in_float64() if precision == "float64" else contextlib.nullcontext():
                stepper = TorchStepper(self._masked, *given, precision, self._evaluating)
                return record_updates(stepper, self.plan, self.plan.rates, {}, updates=1)

        made = run("float32")
        measured = made if self._rounded == "float32" else run(self._rounded)
        # flipped ties are measured against it
        self._recorded = dataclasses.replace(self._recorded, dropped=[made])
        of_run = rounding.rounding(measured, run("float64"))
        return Masked(made, self.layers("dropout"), marked(of_run, masked=True))

    def updates(self, like: Like | None) -> Run:
        """Make the updates in float32, and in float64 for `rounding`."""
        self._drawn = self._constants()
        with self._limits, Deciding(self._decisions.note):
            run = self._run("float32")
        self._recorded = run
        rounded = run if self._rounded == "float32" else self._run(self._rounded)
        measuring = Measuring(rounded)
        self._decisions.restart()
        with Deciding(self._decisions.kept):
            self._exact = self._run("float64", measuring)
        self._measured = measuring.rounding
        if len(run.drawn) != len(self._exact.drawn):  # without rounding, a right port may differ
            run.drawn, self._exact.drawn = [], []
            self._not_drawn.append(f"{words_of_constants(self._drawn)}: it fails in float64")
        return run

    def _constants(self) -> Arrays:
        """Return random numbers for constant arrays with which the reference computes finite outputs."""
        roles, stepper = self.roles(), self._stepper("float32")
        unsaved = {name for name, one in roles["buffers"].items() if not one}
        start = {name: one for name, one in state(self._reference).items() if name not in unsaved}
        for positive in (False, True):
            drawn = draw_constants(start, roles["trainable"], roles["tied"], positive)
            runs = stepper.with_constants(start, drawn) if drawn else []
            outputs = [
                output
                for run in runs
                for arrays in (run.eval_outputs, *run.train_outputs)
                for output in arrays.values()
            ]
            if runs and not any(np.isnan(output).any() for output in outputs):
                return drawn
        if drawn:
            why = "its outputs are not finite" if runs else "the reference rejects them"
            self._not_drawn.append(f"{words_of_constants(drawn)}: {why}")
        return {}

    def _run(self, precision: str, watch: Watch = UNWATCHED) -> Run:
        with in_float64() if precision == "float64" else contextlib.nullcontext():
            stepper = self._stepper(precision)
            return record_run(stepper, self.plan, self.plan.rates, {}, self._drawn, watch)

    def _rerun(self) -> Rerun:
        return Rerun(self._reference, self.plan, self._loss, self._evaluating)

    def _changes(self) -> Rounding:
        """Return how far the updates are from the recorded ones if they are made again now."""
        measuring = Measuring(self._recorded)
        self._run("float32", measuring)
        return measuring.rounding

    def _stepper(self, precision: str) -> TorchStepper:
        given = (self.plan, self._loss, self._make_optimizer, precision, self._evaluating)
        return TorchStepper(self._reference, *given, self._masked, self._initial)

    def loss_example(self) -> Any:
        """Return outputs in the structure that the loss takes."""
        return first_call(self._reference, self.plan.first[0], True)

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the outputs: there is one worker."""
        return outputs

    def exact_kernels(self) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Return a context without effect: PyTorch's kernels are accurate."""
        return contextlib.nullcontext(lambda: 0)

    def tensor(self, array: Any) -> torch.Tensor:
        """Return an array as a tensor that shares its memory."""
        return torch.from_numpy(array)

    def rounding(self, run: Run) -> Rounding:
        """Return the error of each array against float64 or, if larger, a multiple of its change by
        noise.
        """
        first_update = dataclasses.replace(run, later=[], dropped=[], drawn=[])
        noisy = self._noisy_updates(first_update) if self._rounded == "float32" else []
        measured = self._measured
        # Adam scales even a gradient that is only rounding to full size. Such a bias drifts, and so
        # do statistics.
        only_rounding = max(measured[GRADIENTS].values(), default=0.0) >= ONLY_ROUNDING
        in_half = self._rounded == "float16"
        chaotic = not in_half and rounding.is_chaotic(measured, run)
        drifts = not in_half and self.plan.optimizer.is_adaptive and only_rounding
        if not chaotic:  # else the comparison may end before the last update
            measured = rounding.without_updates(measured)
        moved = self._drift(run, first_update, measured, chaotic) if drifts or chaotic else []
        return rounding.with_noise(measured, noisy + moved, moved if chaotic else ())

    def _first_update(self) -> Run:
        """Make update 1 without what later updates add to."""
        run = record_updates(
            self._stepper(self._rounded), self.plan, self.plan.rates, {}, updates=1
        )
        return dataclasses.replace(run, average={}, last_outputs={}, moved={})

    def _noisy_updates(self, first_update: Run) -> list[Rounding]:
        """Return the changes of the arrays of update 1 by noise.

        A run that fails under noise counts for nothing.
        """
        noisy, failed = list[Rounding](), list[str]()
        for seed in range(_NOISY_RUNS):
            try:
                with Noise(seed, self._decisions):
                    one = self._first_update()
            except Exception as error:  # noise may take a probability beyond 1
                failed.append(f"{type(error).__name__}: {first_line(error)}")
                continue
            changes = rounding.rounding(one, first_update, first_update)
            noisy.append(rounding.without_scaled(changes, self.plan.optimizer))
        if failed:
            self.notes.append(
                f"rounding is measured with {len(noisy)} of {_NOISY_RUNS} runs under noise, because "
                f"the reference failed in the others ({failed[0]})"
            )
        return noisy

    def _drift(
        self, run: Run, first_update: Run, measured: Rounding, chaotic: bool
    ) -> list[Rounding]:
        """Return the drift of weights and statistics by noise, in one run, or in two if the
        training is chaotic; [] if training fails then.
        """
        weights = {name: run.after[-1][name] for name in run.gradients}  # both sides get these
        trainable, drifts = self.roles()["trainable"], list[Rounding]()
        try:
            for seed in range(2 if chaotic else 1):
                with Noise(seed):
                    moved = record_updates(
                        self._stepper(self._rounded), self.plan, self.plan.rates, weights
                    )
                drifts.append(rounding.drift(moved, first_update, measured, trainable, chaotic))
            return drifts
        except Exception as error:
            self.notes.append(
                "drift is not measured, because training the reference under noise failed "
                f"({type(error).__name__}: {first_line(error)})"
            )
            return []

    def ties(self, run: Run) -> Ties | None:
        """Return what changes if the ties that `rounding` has met are decided otherwise."""
        decisions, self._decisions = self._decisions, Decisions()  # they may take much memory
        if not decisions.can_tie or self._rounded != "float32":
            return None
        try:
            for seed, scale in _NOISE_OF_TIES:  # so far, noise was in the first update only
                with Noise(seed, decisions, scale):
                    self._run(self._rounded)
            if not decisions.has_ties:
                return None
            decisions.restart()
            with Deciding(decisions.flipped):
                flipped = self._run(self._rounded)
        except Exception as error:
            self.notes.append(
                "ties are not measured, because the reference failed under noise, or with other "
                f"decisions ({type(error).__name__}: {first_line(error)})"
            )
            return None
        return Ties(decisions.lines, rounding.rounding(flipped, run, run), flipped)

    def changing(self, run: Run) -> Changing:
        """Return which elements of integers and booleans change in float64, under noise, or in half
        precision.

        A batch runs under noise only if there are such outputs: other arrays have a rounding.
        """
        others = [self._exact]
        if self._rounded == "float16":
            others.append(self._run("float16"))
        elif any(map(are_integers, [*run.eval_outputs.values(), *run.train_outputs[0].values()])):
            others += self._other_batches(run)
        return rounding.changing(run, others)

    def _other_batches(self, run: Run) -> Iterator[Run]:
        """Yield all batches in float64 and under noise, with the weights before any update, and the
        outputs after the updates. Decisions are those of these runs.
        """
        modes = [("float64", in_float64()), *(("float32", Noise(n)) for n in range(_NOISY_RUNS))]
        for precision, mode in modes:
            with contextlib.suppress(Exception), mode:  # one may fail
                plan, given = self.plan, (self._loss, precision, self._evaluating)
                module = copied(self._reference)
                first, *later = (
                    on_batch(module, plan, batch, *given, run.start) for batch in plan.batches
                )
                last = TorchRun(load(module, run.after[-1]), plan, *given)
                first.last_outputs = last.evaluate(self.plan.batches[0][0])
                yield dataclasses.replace(first, later=later)

    def limits(self) -> list[str]:
        """Return the limits that no number of the updates and probes has reached, and the constant
        arrays that have no random numbers in any run.
        """
        saved = self._reference.state_dict()
        unsaved = [
            f"{name}: always {float(buffer.flatten()[0]):g}"
            for name, buffer in self._reference.named_buffers()
            if name not in saved and hides_its_use(buffer.detach().numpy())
        ]
        return [*self._not_drawn, *unsaved, *self._limits.lines]

    def builds(self) -> list[Arrays]:
        """Return the initial values of several modules."""
        if self._build is None:
            return []
        return several_builds(self._build, self._built, {torch: "manual_seed"})

    def environment(self) -> dict[str, str]:
        """Return versions, threads and kernels of this process."""
        return environment(
            device="CPU",
            threads=torch.get_num_threads(),
            deterministic="ON" if torch.are_deterministic_algorithms_enabled() else "OFF",
            HF32="off" if torch.get_float32_matmul_precision() == "highest" else "as it comes",
            kernels=torch.backends.cpu.get_cpu_capability(),
        )

    def source(self, trace: Trace) -> TorchSource:
        """Return the live reference, which answers in float32."""
        inputs, executions = self.plan.first[0], trace.layers["eval"]
        in_half = self._rounded == "float16"

        def probes_again(module: torch.nn.Module, asked: AskedProbes) -> Probes:
            with self._evaluating(module):
                return probes_of(module, inputs, executions, self._training, asked)

        return TorchSource(
            self._reference,
            None if in_half else self._rerun,
            self._changes,
            () if in_half or not self._of_relus else LEVELS,
            self._of_relus,
            trace.probes or None,
            probes_again,
            self._with_fewer_masks,
        )
