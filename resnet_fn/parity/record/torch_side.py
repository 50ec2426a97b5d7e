"""Record the PyTorch reference."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from resnet_fn.config.hints import first_line
from resnet_fn.parity.explain.torch_search import make_searcher
from resnet_fn.parity.pair.dropouts import shared_masks
from resnet_fn.parity.record import rounding
from resnet_fn.parity.record.alone import losses_alone
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.common import (
    flip_widths,
    loss_of_logits,
    make_recording,
    parameter_roles,
    what_failed,
)
from resnet_fn.parity.record.dropouts import drops_of
from resnet_fn.parity.record.layer_settings import without_dropout
from resnet_fn.parity.record.layers import record_layers, recorded_layers
from resnet_fn.parity.record.probes import Caller, attempted, compute_probes, measure
from resnet_fn.parity.record.randomness import cut_random, is_random
from resnet_fn.parity.record.torch_modes import Limits, Noise, flip_ties, in_float64
from resnet_fn.parity.record.torch_module import (
    call,
    copied,
    dtype_of,
    first_call,
    initialise,
    layer_by_layer,
    outputs_of,
    prepare_reference,
    state,
    tensors,
    with_masks,
)
from resnet_fn.parity.record.torch_recipe import recipe_loss
from resnet_fn.parity.record.torch_step import (
    Loss,
    MakeOptimizer,
    on_batch,
    optimizer_alone,
    run_torch,
    scalar,
    settings_of_optimizer,
)
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Probes, Rounding, Run, Trace
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.limits import ONLY_ROUNDING, SPREADS
from resnet_fn.parity.trace.plan import Task
from resnet_fn.parity.trace.probes import Asked
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree


@torch.random.fork_rng()
def record_reference(
    module: torch.nn.Module,
    task: Task,
    loss: Loss | None = None,
    make_optimizer: MakeOptimizer | None = None,
    build: Callable[[], torch.nn.Module] | None = None,
    probes: bool = True,
) -> Trace:
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

    def run(precision: str) -> Run:
        with in_float64() if precision == "float64" else contextlib.nullcontext():
            trace, later = (
                run_torch(reference, task, criterion, make_optimizer, precision),
                task.batches[1:],
            )
            trace.later = [
                on_batch(reference, task, one, criterion, precision, trace.start) for one in later
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
        return scalar(value).detach().double().numpy()

    def trained() -> Arrays:
        outputs = first_call(reference, first, True)
        return {**outputs_of(outputs), stages.LOSS.name: loss_of(outputs, labels)}

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
    with Limits() as limits:
        trace = run("float32")
    exact = run("float64")
    settings = settings_of_optimizer(reference, task, make_optimizer)
    alone = optimizer_alone(reference, task, make_optimizer)
    outputs = first_call(reference, first, True)
    losses = losses_alone(loss_of, trace.train_outputs[0], task, outputs, torch.from_numpy)
    noisy, first_update = [], dataclasses.replace(trace, later=[], dropped=[])
    for seed in range(_NOISY_RUNS) if rounded == "float32" else ():
        with Noise(seed):
            one = on_batch(reference, task, task.batches[0], criterion, rounded, trace.start)
            noisy.append(rounding.rounding(one, first_update))
    measured = rounding.rounding(trace if rounded == "float32" else run(rounded), exact)
    # Adam scales even a gradient that is only rounding to full size. Such a bias drifts, and so do
    # statistics.
    adaptive = task.own_optimizer or task.recipe.optimizer != "sgd"
    failed: list[str] = []
    if (
        noisy
        and adaptive
        and max(measured[stages.GRADIENTS].values(), default=0.0) >= ONLY_ROUNDING
    ):
        weights = {name: trace.after[-1][name] for name in trace.gradients}  # both sides get these
        try:
            with Noise(0):
                moved = run_torch(reference, task, criterion, make_optimizer, rounded, last=weights)
            noisy.append(rounding.drift(moved, first_update, measured, roles["trainable"]))
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
        return rounding.rounding(flipped, exact), count()

    recording = make_recording(
        f"PyTorch {torch.__version__.partition('+')[0]}",
        task,
        lambda array: np.array(torch.from_numpy(np.array(array)).numpy()),
        dropped,
        initial=initial,
        layers=layers,
        run=trace,
        optimizer_settings=settings,
        optimizer_alone=alone,
        losses_alone=losses,
        rounding=rounding.with_noise(measured, noisy),
        flipped={
            one: functools.partial(flip, one)
            for one in flip_widths(layers["train"])
            if rounded == "float32"
        },
        search=make_searcher(reference, task, criterion) if rounded == "float32" else None,
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
    recording.builds = several_builds(build, built, {torch: "manual_seed"}) if build else []
    return recording


def layers_with_rounding(
    reference: torch.nn.Module, inputs: Tree, train: bool, rounded: str
) -> list[Layer]:
    """Return all layers' executions.

    The rounding of inputs and outputs is the relative error against float64.
    """
    layers = layers_of(reference, inputs, train)
    with in_float64():
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
    reference: torch.nn.Module, inputs: Tree, executions: Sequence[Layer], limits: Limits
) -> tuple[Probes, Callable[[Asked], None]]:
    """Return a module's probes (runs on changed inputs), and a function that measures the rounding
    of chosen probes.
    """

    def compute(module: torch.nn.Module, asked: Asked | None = None) -> Probes:
        dtype = dtype_of(module)
        convert = functools.partial(tensors, dtype=dtype)
        caller = Caller(
            lambda tensor: tensor.detach().numpy(),
            convert,
            outputs_of,
            lambda given: layer_by_layer(),
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
        with in_float64():
            measure(probes, asked, compute(copied(reference).double(), asked), 1)
        for seed in range(_NOISY_PROBES):
            module = copied(reference)
            with Noise(seed):
                noisy = compute(module, asked)
            measure(probes, asked, noisy, SPREADS)

    return probes, measured


def layers_of(module: torch.nn.Module, inputs: Tree, train: bool) -> list[Layer]:
    """Run a copy of a module on a batch, and record the inputs and outputs of its layers."""
    module, dtype = copied(module).train(train), dtype_of(module)

    def run() -> None:
        with torch.no_grad():
            call(module, tensors(inputs, dtype))

    return record_layers(module, run)


def roles_of(module: torch.nn.Module) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, as fields of a `Trace`."""
    buffers = list(module.named_buffers(remove_duplicate=False))
    named = [*module.named_parameters(remove_duplicate=False), *buffers]
    return parameter_roles(named, [name for name, _ in buffers])


_NOISY_RUNS, _NOISY_PROBES = 4, 2
