"""Train the PyTorch reference in a plain training loop, and record what the comparison needs.

Needs PyTorch only.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import torch

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity import stages
from resnet_fn.parity.alone import changes_alone, losses_alone, made_up
from resnet_fn.parity.dropout import drops_of, shared_masks
from resnet_fn.parity.environment import environment
from resnet_fn.parity.initial import several_builds
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.layers.record import record_layers, recorded_layers
from resnet_fn.parity.layers.settings import without_dropout
from resnet_fn.parity.optimizer_settings import RATE, torch_settings
from resnet_fn.parity.probes import Asked, Caller, attempted, compute_probes, measure
from resnet_fn.parity.randomness import cut_random, is_apart, is_random
from resnet_fn.parity.reference.training import Average, recipe_loss, recipe_optimizer
from resnet_fn.parity.search import Searcher
from resnet_fn.parity.trace import (
    LATER,
    STATISTICS,
    Arrays,
    Batch,
    Probes,
    Recording,
    Rounding,
    Task,
    Trace,
    Tree,
    check_scalar,
    flip_widths,
    loss_of_logits,
    make_recording,
    map_tree,
    named_leaves,
    parameter_roles,
    split,
    what_failed,
)

Loss = Callable[[Any, Any], torch.Tensor]
MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]
# float16 by autocasting
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float32}


@torch.random.fork_rng()
def record_reference(
    module: torch.nn.Module,
    task: Task,
    loss: Loss | None = None,
    make_optimizer: MakeOptimizer | None = None,
    build: Callable[[], torch.nn.Module] | None = None,
    probes: bool = True,
) -> Recording:
    """Train a copy of a torch module for a few updates, and record what the comparison with the
    port needs.

    The copy has no dropout, and `prepare_reference` randomises initial statistics and parameters.
    `build` makes the module again, to record the initial values of several modules. `probes` allows
    runs on changed inputs.
    """
    task = dataclasses.replace(
        task, batches=[map_tree(np.array, tuple(batch)) for batch in task.batches]
    )
    inputs = task.batches[0][0]

    def built(module: torch.nn.Module) -> Arrays:
        initialise(module, inputs)
        return state(module)

    initial = built(module)
    first, labels = task.first
    original = copied(module).float()
    criterion = loss or loss_of_logits(
        "the reference", first_call(original, first, True), recipe_loss(task.recipe)
    )
    random_eval = is_random(lambda: outputs_of(first_call(original, inputs)), torch.get_rng_state)
    with without_dropout(module.named_modules()) as dropped:
        reference = copied(module).float()
    changed = prepare_reference(reference, inputs, task.seed)
    if make_optimizer:  # making it may freeze or unfreeze parameters
        trained_by = copied(reference)
        make_optimizer(trained_by)
        for name, one in reference.named_parameters():
            one.requires_grad_(trained_by.get_parameter(name).requires_grad)
    roles = roles_of(module) | {"trainable": roles_of(reference)["trainable"]}
    rounded = "float16" if task.recipe.precision == "fp16" else "float32"

    def run(precision: str) -> Trace:
        with _in_float64() if precision == "float64" else contextlib.nullcontext():
            trace, later = (
                run_torch(reference, task, criterion, make_optimizer, precision),
                task.batches[1:],
            )
            trace.later = [
                _on_batch(reference, task, one, criterion, precision, trace.start) for one in later
            ]
            if dropping is not None:
                trace.dropped = [
                    run_torch(dropping, task, criterion, make_optimizer, precision, updates=1)
                ]
            return trace

    def loss_of(outputs: Tree, labels: Tree) -> np.ndarray:
        try:
            value = criterion(outputs, tensors(labels, torch.float32))
        except Exception as error:
            given, fix = (
                {"outputs": outputs_of(outputs), "labels": labels},
                "give labels that it takes, or --loss",
            )
            raise what_failed("loss of the reference", given, error, fix) from error
        return _scalar(value).detach().double().numpy()

    def trained() -> Arrays:
        outputs = first_call(reference, first, True)
        return {**outputs_of(outputs), stages.LOSS: loss_of(outputs, labels)}

    random = is_random(trained, torch.get_rng_state)
    layers = {
        mode: layers_with_rounding(reference, first, mode == "train", rounded)
        for mode in ("eval", "train")
    }

    def in_training(name: str, ones: np.ndarray) -> np.ndarray:
        return outputs_of(first_call(original.get_submodule(name), ones, True))["logits"]

    drops, dropping = drops_of(dropped, layers["train"], in_training), None
    if masks := shared_masks((drops, layers["train"])):
        dropping = with_masks(reference, masks)
        layers["dropout"] = layers_with_rounding(dropping, first, True, rounded)
    with _Limits() as limits:
        trace = run("float32")
    exact = run("float64")
    trace.alone = optimizer_alone(reference, task, make_optimizer)
    outputs = first_call(reference, first, True)
    trace.losses_alone = losses_alone(
        loss_of, trace.train_outputs[0], task, outputs, torch.from_numpy
    )
    noisy, first_update = [], dataclasses.replace(trace, later=[], dropped=[])
    for seed in range(_NOISY_RUNS) if rounded == "float32" else ():
        with _Noise(seed):
            one = _on_batch(reference, task, task.batches[0], criterion, rounded, trace.start)
            noisy.append(stages.rounding(one, first_update))
    measured = stages.rounding(trace if rounded == "float32" else run(rounded), exact)
    # Adam scales even a gradient that is only rounding to full size. Such a bias drifts, and so do
    # statistics.
    adaptive = task.own_optimizer or task.recipe.optimizer != "sgd"
    failed: list[str] = []
    if noisy and adaptive and max(measured[stages.GRADIENTS].values(), default=0.0) >= stages.NOISE:
        weights = {name: trace.after[-1][name] for name in trace.gradients}  # both sides get these
        try:
            with _Noise(0):
                moved = run_torch(reference, task, criterion, make_optimizer, rounded, last=weights)
            noisy.append(stages.drift(moved, first_update, measured, roles["trainable"]))
        except Exception as error:
            cause = f"{type(error).__name__}: {first_line(error)}"
            failed.append(
                "drift is not measured, because training the reference under noise failed "
                f"({cause})"
            )
    random_train = cut_random(layers["train"], layers_of(reference, first, True)) if random else ""

    asked = probes and rounded == "float32" and not random_eval
    probed = (
        attempted(lambda: _probes(reference, first, layers["eval"], limits), failed, "PyTorch")
        if asked
        else None
    )

    def flip(width: float) -> tuple[Rounding, int]:
        with flip_ties(width) as count:
            # twice as fast as float64; the error of float32 is rounding, too
            flipped = run("float32")
        return stages.rounding(flipped, exact), count()

    recording = make_recording(
        f"PyTorch {torch.__version__.partition('+')[0]}",
        task,
        lambda array: np.array(torch.from_numpy(np.array(array)).numpy()),
        dropped,
        initial=initial,
        layers=layers,
        trace=trace,
        rounding=stages.with_noise(measured, noisy),
        flipped={
            one: functools.partial(flip, one)
            for one in flip_widths(layers["train"])
            if rounded == "float32"
        },
        search=_searcher(reference, task, criterion) if rounded == "float32" else None,
        environment=environment(
            device="CPU",
            threads=torch.get_num_threads(),
            deterministic="ON" if torch.are_deterministic_algorithms_enabled() else "OFF",
            HF32="off" if torch.get_float32_matmul_precision() == "highest" else "as it comes",
            kernels=torch.backends.cpu.get_cpu_capability(),
        ),
        random_eval=random_eval,
        random_train=random_train,
        drops=drops,
        limits=limits.lines,
        probes=probed[0] if probed else {},
        measure_probes=probed[1] if probed else None,
        **roles,
    )
    recording.notes += [*([changed] if changed else []), *failed]
    trace.builds = several_builds(build, built, {torch: "manual_seed"}) if build else []
    return recording


def _searcher(module: torch.nn.Module, task: Task, loss: Loss) -> Searcher:
    run = _Run(module, task, loss, "float32")
    run.module.eval()  # some layers may be in another mode than the module

    def forward(train: bool) -> Any:
        if run.module.training != train:  # setting the mode visits all layers
            run.module.train(train)
        return call(run.module, tensors(task.first[0], torch.float32))

    def backward() -> Arrays:
        run.module.zero_grad()
        value, _, _ = run.backward(task.batches[0])
        return {**run.gradients(), stages.LOSS: np.asarray([value])}

    return Searcher(run.module, forward, backward)


def searcher_of(recording: Recording, module: torch.nn.Module) -> Searcher:
    """Return a `Searcher` for a copy of `module`.

    Raises ValueError if the copy does not give the recorded outputs.
    """
    task, trace = recording.task, recording.trace
    initialise(module, task.batches[0][0])
    with without_dropout(module.named_modules()):
        reference = copied(module).float()
    outputs = outputs_of(first_call(_load(reference, trace.start), task.batches[0][0]))
    if any(
        relative_error(outputs.get(name, np.nan), one) > 1e-3
        for name, one in trace.eval_outputs.items()
    ):
        file = recording.file.partition(",")[0]
        raise ValueError(
            f"{file}: the module does not compute the recorded outputs; give the recorded module's "
            "file"
        )
    if task.own_loss:
        return _searcher(reference, task, _no_loss)
    outputs = first_call(reference, task.first[0], True)
    return _searcher(
        reference, task, loss_of_logits("the reference", outputs, recipe_loss(task.recipe))
    )


def _no_loss(outputs: Any, labels: Any) -> torch.Tensor:
    raise ValueError(
        "loss: the trace lacks the reference's own loss function; compare both nets in one process"
    )


def layers_with_rounding(
    reference: torch.nn.Module, inputs: Tree, train: bool, rounded: str
) -> list[Layer]:
    """Return all layers' executions.

    The rounding of inputs and outputs is the relative error against float64.
    """
    layers = layers_of(reference, inputs, train)
    with _in_float64():
        exact = {
            layer.title: layer for layer in layers_of(copied(reference).double(), inputs, train)
        }
    with torch.autocast("cpu", torch.float16, enabled=rounded == "float16"):
        measured = layers_of(reference, inputs, train) if rounded == "float16" else layers
    for layer, one in zip(layers, measured, strict=True):
        other = exact.get(layer.title, layer)  # a layer may be skipped at random
        for what in ("input", "output"):
            if getattr(one, what) is not None and getattr(other, what) is not None:
                setattr(
                    layer,
                    f"{what}_rounding",
                    relative_error(getattr(one, what), getattr(other, what)),
                )
    return layers


def _probes(
    reference: torch.nn.Module, inputs: Tree, executions: Sequence[Layer], limits: "_Limits"
) -> tuple[Probes, Callable[[Asked], None]]:
    """Return a module's probes (runs on changed inputs), and a function that measures the rounding
    of chosen probes.
    """

    def compute(module: torch.nn.Module, asked: Asked | None = None) -> Probes:
        dtype = _dtype_of(module)
        convert = functools.partial(tensors, dtype=dtype)
        caller = Caller(
            lambda tensor: tensor.detach().numpy(),
            convert,
            outputs_of,
            lambda given: _layer_by_layer(),
        )
        layers = [*recorded_layers(module.eval())]
        with torch.no_grad():
            return compute_probes(
                layers, lambda tree: call(module, convert(tree)), inputs, executions, caller, asked
            )

    with limits:
        probes = compute(copied(reference))  # a copy, because a layer may store its inputs

    def measured(asked: Asked) -> None:
        """Set asked probes' rounding: the error against float64 or, if larger, a multiple of the
        change by noise.
        """
        with _in_float64():
            measure(probes, asked, compute(copied(reference).double(), asked), 1)
        for seed in range(_NOISY_PROBES):
            module = copied(reference)
            with _Noise(seed):
                noisy = compute(module, asked)
            measure(probes, asked, noisy, stages.SPREADS)

    return probes, measured


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    """Turn float32 tensors into float64 inside a `with` block, for example the result of
    `torch.zeros(…)`.
    """

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32:
            return leaf.double()
        return torch.float64 if leaf is torch.float32 else leaf

    wide = functools.partial(torch.utils._pytree.tree_map, widen)

    class Widen(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            # the second argument, a memo of copies, must not be mapped
            if function is torch.Tensor.__deepcopy__:
                return function(*args, **(kwargs or {}))
            function = torch.Tensor.double if function is torch.Tensor.float else function
            return wide(function(*wide(args), **wide(kwargs or {})))

    usual = torch.get_default_dtype()
    try:
        with Widen():
            torch.set_default_dtype(torch.float64)  # of `torch.full(…, finfo(dtype).min)`
            yield
    except Exception as error:
        frames = [
            one
            for one in traceback.extract_tb(error.__traceback__)
            if not one.filename.startswith(_INSIDE)
        ]
        place = "".join(f"{frame.filename}:{frame.lineno}: {frame.line}: " for frame in frames[-1:])
        raise ValueError(
            f"reference: {place}the module fails in float64, which is needed to measure rounding "
            f"({type(error).__name__}: {first_line(error)}); make tensors in the input's type, "
            "dtype=x.dtype"
        ) from error
    finally:
        torch.set_default_dtype(usual)


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module.

    Tensors that are computed from parameters are copied as plain tensors.
    """
    values = [value for layer in module.modules() for value in vars(layer).values()]
    known = {
        id(one): one.detach().clone()
        for one in values
        if isinstance(one, torch.Tensor) and not one.is_leaf
    }
    # The copy shares the layers' random generators, so that each call draws other numbers
    # (`is_random`). Generators in lists or dicts are copied, so a layer that uses them seems not to
    # be random.
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, Random)
    shared = {id(one): one for one in values if isinstance(one, kinds)}
    return copy.deepcopy(module, {**known, **shared})


def initialise(module: torch.nn.Module, inputs: Tree) -> None:
    """Run a module with lazy parameters once on a batch, which gives the parameters their sizes."""
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        was_training = module.training
        with torch.no_grad():
            call(module.eval(), tensors(inputs, torch.float32))
        module.train(was_training)


_INSIDE = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))


def layers_of(module: torch.nn.Module, inputs: Tree, train: bool) -> list[Layer]:
    """Run a copy of a module on a batch, and record the inputs and outputs of its layers."""
    module, dtype = copied(module).train(train), _dtype_of(module)

    def run() -> None:
        with torch.no_grad():
            call(module, tensors(inputs, dtype))

    return record_layers(module, run)


def _dtype_of(module: torch.nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def roles_of(module: torch.nn.Module) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, as fields of a `Recording`."""
    buffers = list(module.named_buffers(remove_duplicate=False))
    named = [*module.named_parameters(remove_duplicate=False), *buffers]
    return parameter_roles(named, [name for name, _ in buffers])


def state(module: torch.nn.Module) -> Arrays:
    """Return the parameters and statistics of a module as arrays by name, without BatchNorm's batch
    counters.
    """
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def outputs_of(value: Any) -> Arrays:
    """Return the tensors in a module's outputs as arrays by name.

    A single tensor has the name "logits".
    """
    return {
        name: leaf.detach().cpu().double().numpy()
        if leaf.dtype == torch.float64
        else leaf.detach().float().numpy()
        for name, leaf in named_leaves(value, "logits").items()
        if isinstance(leaf, torch.Tensor)
    }


def with_masks(
    module: torch.nn.Module, masks: Mapping[str, Sequence[np.ndarray]]
) -> torch.nn.Module:
    """Return a copy of a module whose layers multiply outputs by `masks` in training mode, one mask
    for each call.
    """
    module = copied(module)

    def multiply(values: Sequence[np.ndarray]) -> Callable[..., torch.Tensor | None]:
        tensors, calls = [torch.tensor(value) for value in values], itertools.count()

        def hook(layer: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
            return (
                output * tensors[next(calls) % len(tensors)].to(output.dtype)
                if layer.training
                else None
            )

        return hook

    for name, values in masks.items():
        module.get_submodule(name).register_forward_hook(multiply(values))
    return module


def run_torch(
    module: torch.nn.Module,
    task: Task,
    loss: Loss,
    make_optimizer: MakeOptimizer | None,
    precision: str,
    updates: int | None = None,
    last: Arrays | None = None,
) -> Trace:
    """Train a copy of a torch module for a few updates, and record what the comparison needs.

    `precision` is "float32", "float64", or "float16" for automatic mixed precision. If `updates` is
    None, all updates of the task are made. If `last` is given, the trace's `last_outputs` are
    computed with the weights in `last`.
    """
    run, batches = _Run(module, task, loss, precision), task.batches
    module, parameters = run.module, run.parameters
    optimizer, set_rate = _optimizer_of(module, task, make_optimizer)
    average = Average(module, task.recipe, task.updates_per_epoch) if task.recipe.ema else None
    trace = Trace(run.evaluate(batches[0]), start=state(module), rates=task.rates)
    buffers = {name: one.clone() for name, one in module.named_buffers()}
    trace.settings = torch_settings(
        optimizer.param_groups, {id(one): name for name, one in parameters.items()}
    )
    if not make_optimizer:  # the recipe's optimizer has no learning rate of its own
        del trace.settings[RATE]
    for update, batch in enumerate(batches[:updates]):
        set_rate(trace.rates[update])
        optimizer.zero_grad()
        value, outputs, parts = run.backward(batch)
        trace.losses.append(value)
        trace.train_outputs.append(outputs)
        if update == 0:
            trace.gradients, trace.parts = run.gradients(), parts
        limit = task.recipe.clip_norm or float("inf")
        trace.norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), limit)))
        if update == 0:
            trace.clipped = run.gradients()
        optimizer.step()
        if average is not None:
            average.update(module)
        if update < LATER:
            trace.after.append(state(module))
        if update + 1 == min(LATER, len(batches)):
            trace.last_outputs = run.evaluate(
                batches[0], _load(copied(module), last) if last else module
            )
            trace.moved = _moved(module, buffers, task.first[0])
    if average is not None:
        trace.average = state(average.module)
    return trace


def _load(module: torch.nn.Module, values: Arrays) -> torch.nn.Module:
    module.load_state_dict(
        {name: torch.from_numpy(np.array(one)) for name, one in values.items()}, strict=False
    )
    return module


def _on_batch(
    module: torch.nn.Module, task: Task, batch: Batch, loss: Loss, precision: str, start: Arrays
) -> Trace:
    """Return the trace of a copy of a module on one batch, without an update."""
    run = _Run(module, task, loss, precision)
    trace = Trace(run.evaluate(batch), start=start, rates=[])
    value, outputs, _ = run.backward(batch)
    trace.losses, trace.train_outputs, trace.gradients = [value], [outputs], run.gradients()
    return trace


class _Run:
    """Runs a copy of a module, in one precision, on the batches of a task."""

    def __init__(self, module: torch.nn.Module, task: Task, loss: Loss, precision: str) -> None:
        self.task, self.loss, self.dtype = task, loss, _DTYPES[precision]
        self.module = copied(module).to(self.dtype)
        self.parameters = {
            name: one for name, one in self.module.named_parameters() if one.requires_grad
        }
        self.autocast = functools.partial(
            torch.autocast, "cpu", torch.float16, enabled=precision == "float16"
        )
        # The loss scale, without which small gradients would underflow.
        self.scale = task.recipe.loss_scale if precision == "float16" else 1.0

    def evaluate(self, batch: Batch, module: torch.nn.Module | None = None) -> Arrays:
        """Return the outputs of the copy, or of `module`, on a batch in evaluation mode."""
        net = self.module if module is None else module
        with torch.no_grad(), self.autocast():
            return outputs_of(call(net.eval(), tensors(batch[0], self.dtype)))

    def backward(self, batch: Batch) -> tuple[float, Arrays, list[Arrays]]:
        """Run a batch forward and backward in training mode. Before the call, `parameter.grad` must
        be zero or None.

        Returns the mean loss, the outputs of the last micro-batch, and the gradients of each
        micro-batch. With a single micro-batch, the list of gradients is empty. Call `gradients`
        instead.
        """
        self.module.train()
        total, parts, count = 0.0, list[Arrays](), self.task.accumulate
        before = self.gradients()
        for inputs, labels in split(tuple(batch), count):
            with self.autocast():
                outputs = call(self.module, tensors(inputs, self.dtype))
            half = isinstance(outputs, torch.Tensor) and outputs.dtype == torch.float16
            value = _scalar(
                self.loss(outputs.to(self.dtype) if half else outputs, tensors(labels, self.dtype))
            )
            (value * (self.scale / count)).backward()
            total += float(value.detach()) / count
            if count > 1:
                now = self.gradients()
                parts.append(
                    {name: (now[name] - before[name]) * (count / self.scale) for name in now}
                )
                before = now
        for parameter in self.parameters.values():
            if self.scale != 1.0 and parameter.grad is not None:
                parameter.grad /= self.scale
        return total, outputs_of(outputs), parts

    def gradients(self) -> Arrays:
        """Return the gradients by parameter name. A parameter without a gradient gets zeros."""
        return {
            name: np.zeros(tuple(one.shape), np.float32)
            if one.grad is None
            else one.grad.numpy().copy()
            for name, one in self.parameters.items()
        }


def _moved(module: torch.nn.Module, first: dict[str, torch.Tensor], inputs: Tree) -> dict[str, str]:
    """For each buffer that training changed, return the mode in which its change alters an output,
    or "" if none.
    """

    @functools.cache  # without `name`, outputs are used again for each buffer
    def outputs(train: bool, name: str = "") -> Arrays:
        one = copied(module).train(train)
        if name:
            layer, _, leaf = name.rpartition(".")
            setattr(one.get_submodule(layer), leaf, first[name].clone())
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return outputs_of(call(one, tensors(inputs, _dtype_of(module))))

    changes: dict[str, str] = {}
    for name, value in module.named_buffers():
        before = first.get(name)
        if name.rpartition(".")[2] in STATISTICS or before is None or before.shape != value.shape:
            continue
        counts = (
            value.numel() == 1 and value.dtype != torch.bool and float(value - before).is_integer()
        )
        if counts or torch.equal(before, value):
            continue
        modes = {"evaluation": False, "training": True}.items()
        changes[name] = next(
            (mode for mode, train in modes if is_apart(outputs(train), outputs(train, name))), ""
        )
    return changes


_NOISY_RUNS, _NOISY_PROBES = 4, 2
# Calls that do not round, because they only move, make or read numbers.
_EXACT = """
    __deepcopy__ __get__ __getitem__ __reduce_ex__ __set__ arange backward cat chunk clone contiguous cpu detach dim
    double dropout embedding empty expand expand_as flatten flip float full gather index_select item masked_fill
    max_pool2d numpy ones ones_like pad permute relu relu_ repeat reshape roll size split squeeze stack swapaxes t
    tensor to tolist transpose unbind unflatten unsqueeze view view_as where zeros zeros_like
"""


class _Noise(torch.overrides.TorchFunctionMode):
    """A context manager that adds relative noise of 2⁻²³ to float32 operands and results of calls
    that round.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator, self.exact = torch.Generator().manual_seed(seed), {*_EXACT.split()}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith(
            ("__i", "__set")
        )
        if name in self.exact or in_place or "out" in kwargs:
            return function(*args, **kwargs)
        noisy = functools.partial(torch.utils._pytree.tree_map, self._add)
        kept = 1 if name == "batch_norm" else len(args)  # writes into its further arguments
        return noisy(function(*noisy(args[:kept]), *args[kept:], **kwargs))

    def _add(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype != torch.float32:
            return leaf
        return leaf * (1 + 2**-23 * torch.randn(leaf.shape, generator=self.generator))


# Functions that limit numbers → the names of their arguments after the first.
_LIMITED = {
    "clamp": ("min", "max"),
    "clip": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
}
_LIMITED["normalize"] = ("p", "dim", "eps")


class _Limits(torch.overrides.TorchFunctionMode):
    """A context manager that notes unused limits, such as `clamp(min=1e-12)` if all numbers are 0
    or above 1e-12.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached: dict[str, bool] = {}

    @property
    def lines(self) -> list[str]:
        """A line for each limit that changes no number except 0, such as "net.py:31, clamp: nothing
        below 1e-12".
        """
        return [line for line, reached in self.reached.items() if not reached]

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(function, "__name__", "").rstrip("_"), kwargs or {}
        if args and name in _LIMITED:
            x, given = args[0], dict(zip(_LIMITED[name], args[1:], strict=False)) | kwargs
            if name == "normalize":
                x, given["min"] = (
                    x.norm(given.get("p", 2.0), given.get("dim", 1)),
                    given.get("eps", 1e-12),
                )
            stack = [
                one
                for one in traceback.extract_stack()[:-1]
                if not one.filename.startswith(_INSIDE[0])
            ]
            # a call by this package, not by the user's code
            own = stack[-1].filename.startswith(_INSIDE[1])
            place = f"{os.path.basename(stack[-1].filename)}:{stack[-1].lineno}"
            for end, word in (("min", "below"), ("max", "above")):
                if isinstance(limit := given.get(end), int | float) and not own:
                    line = f"{place}, {name}: nothing {word} {limit:g}"
                    beyond = x < limit if end == "min" else x > limit
                    self.reached[line] = self.reached.get(line, False) or bool(
                        (beyond & (x != 0)).any()
                    )
        return function(*args, **kwargs)


def _optimizer_of(
    module: torch.nn.Module, task: Task, make_optimizer: MakeOptimizer | None
) -> tuple[torch.optim.Optimizer, Callable[[float], None]]:
    """Return the optimizer, and a function that sets the learning rates of its groups."""
    optimizer = make_optimizer(module) if make_optimizer else recipe_optimizer(task.recipe, module)
    # Each group keeps the ratio of its rate to the largest group's rate.
    largest = max(group["lr"] for group in optimizer.param_groups) or 1.0
    shares = [group["lr"] / largest if make_optimizer else 1.0 for group in optimizer.param_groups]

    def set_rate(rate: float) -> None:
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share

    return optimizer, set_rate


def optimizer_alone(
    module: torch.nn.Module, task: Task, make_optimizer: MakeOptimizer | None
) -> dict[str, Arrays]:
    """Update random weights with random gradients.

    Return the changes after the first and the last update, by name.
    """
    module = copied(module)
    parameters = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    weights, gradients = made_up(
        {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    )
    for name, parameter in parameters.items():
        parameter.data.copy_(torch.from_numpy(weights[name]))
    optimizer, set_rate = _optimizer_of(module, task, make_optimizer)

    def update(gradients: Arrays, rate: float) -> None:
        set_rate(rate)
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name]).to(parameter.dtype)
        optimizer.step()

    return changes_alone(
        weights, gradients, update, lambda: {n: p.detach().numpy() for n, p in parameters.items()}
    )


def _scalar(value: Any) -> torch.Tensor:
    check_scalar("the reference", value, torch.Tensor)
    return value.reshape(())


def tensors(tree: Tree, dtype: torch.dtype) -> Tree:
    """Return the tree with arrays copied to tensors. Floats get the type `dtype`."""
    # Arrays are copied, because a module may write into its inputs.
    return map_tree(
        lambda leaf: torch.from_numpy(np.array(leaf)).to(dtype if leaf.dtype.kind == "f" else None),
        tree,
    )


def first_call(module: torch.nn.Module, inputs: Tree, train: bool = False) -> Any:
    """Return the outputs of a copy of a module on a batch.

    An error becomes a ValueError that lists the inputs.
    """
    try:
        with torch.no_grad():
            return call(copied(module).train(train), tensors(inputs, torch.float32))
    except Exception as error:
        raise what_failed(
            "reference", inputs, error, "give --inputs, or sizes that the module takes"
        ) from error


@contextlib.contextmanager
def _layer_by_layer() -> Iterator[None]:
    """Switch torch's fused transformer kernels off inside a `with` block."""
    was = torch.backends.mha.get_fastpath_enabled()
    # fused kernels skip hooks, and return zeros for hidden tokens
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def call(module: torch.nn.Module, inputs: Tree) -> Any:
    """Return the module's outputs.

    A tuple is passed as positional arguments, a dict as keyword arguments.
    """
    with _layer_by_layer():
        if isinstance(inputs, dict):
            return module(**inputs)
        return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


@torch.no_grad()
def prepare_reference(module: torch.nn.Module, inputs: Tree, seed: int) -> str:
    """Randomise, in place, untrained BatchNorm statistics and trained parameters whose numbers are
    all equal.

    Initial values such as mean 0 and gamma 1 would hide how a port uses them. Statistics are drawn
    around those of a batch, so that activations keep their size. Returns a line that names the
    changed parameters, or an empty string.
    """
    generator = torch.Generator().manual_seed(seed)
    norms, changed = [], []
    for layer in module.modules():
        if (
            isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
            and layer.affine
            and layer.track_running_stats
        ):
            mean, variance = layer.running_mean, layer.running_var
            if (
                mean is not None
                and variance is not None
                and not mean.any()
                and (variance == 1).all()
            ):
                norms.append((layer, layer.momentum))
                layer.momentum = 1.0
    for name, weight in module.named_parameters():
        if weight.requires_grad and weight.numel() and (weight == weight.flatten()[0]).all():
            # A matrix of zeros hides all layers before it, so its numbers get the size 1/√fan-in.
            size = 0.2 * float(weight.flatten()[0].abs()) or (
                weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.2
            )
            weight += size * torch.randn(weight.shape, generator=generator)
            changed.append(name)
    words = (
        f"random numbers for {len(changed)} constant arrays of the reference: {few(changed)}"
        if changed
        else ""
    )
    if not norms:
        return words
    was_training = module.training
    module.train(True)
    call(module, tensors(inputs, torch.float32))
    for layer, momentum in norms:
        layer.momentum = momentum
        mean, variance = layer.get_buffer("running_mean"), layer.get_buffer("running_var")
        mean += 0.2 * torch.randn(mean.shape, generator=generator) * variance.sqrt()
        variance *= torch.exp(0.5 * torch.randn(variance.shape, generator=generator))
        # A channel that is constant on this batch has variance 0. Dividing by √eps would magnify
        # rounding.
        variance.clamp_(min=0.01 * float(variance.mean()) + 1e-3)
    module.train(was_training)
    return words


@contextlib.contextmanager
def flip_ties(width: float) -> Iterator[Callable[[], int]]:
    """Treat ties (ReLU inputs near the kink) as inputs on the kink's other side, inside a `with`
    block.

    A tie is nearer to the kink than `width` times the input's root mean square. For a tie, the
    output of a ReLU hardly changes, but the gradient changes from 0 to 1 or from 1 to 0. Yields a
    function that counts the ties so far.
    """
    functional = torch.nn.functional
    relus = {
        functional.relu,
        functional.relu_,
        torch.relu,
        torch.relu_,
        torch.Tensor.relu,
        torch.Tensor.relu_,
    }
    count = 0

    def flipped(x: torch.Tensor, at: float) -> torch.Tensor:
        nonlocal count
        tie = (x.detach() - at).abs() < width * x.detach().square().mean().sqrt()
        count += int(tie.sum())
        above = torch.relu(x - at)  # its gradient at 0 is 0
        return torch.where(tie, x - at - above, above)

    class FlipTies(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function in relus:
                return flipped(args[0], 0.0)
            if function in (functional.relu6, functional.hardtanh):
                least, most = (
                    (0.0, 6.0)
                    if function is functional.relu6
                    else (kwargs["min_val"], kwargs["max_val"])
                )
                return least + flipped(args[0], least) - flipped(args[0], most)
            return function(*args, **(kwargs or {}))

    with FlipTies():
        yield lambda: count
