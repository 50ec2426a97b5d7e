"""`fit` trains a caller's own net on arrays, by the loop that trains recipes."""

import sys
from collections.abc import Sequence
from typing import Any

import mindspore
from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.parameters import assign, copy_arrays
from resnet_fn.config.fields import OWN, check_names
from resnet_fn.config.hints import few, first_line
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.agreement import check_data
from resnet_fn.data.dataset import Arrays, DataSet, check_labels
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.arrays import are_classes, check_arrays, describe, digest
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.evaluate import Evaluation, keeps_all_classes
from resnet_fn.evaluation.loaded_net import LoadedNet, assign_checkpoint
from resnet_fn.evaluation.scoring import score
from resnet_fn.report.writer import write_report
from resnet_fn.run import loop
from resnet_fn.run.build import Own
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, gather_texts
from resnet_fn.update.loss import Loss

_NO_CLASSES = 'for integers that are no classes give targets.astype("float32"), and a loss of your own'
_OF_RECIPES = ("model", "dataset", "multi_label", "which", "loss_scale", "loss_scale_interval", "max_skips")


def fit(
    net: nn.Cell, train: Sequence[Any], validation: Sequence[Any], loss: Loss | str = "cross_entropy", **settings: Any
) -> loop.TrainResult:
    """Train a net of your own on arrays, by the loop of `train`: the same run folder, checkpoints and exact resume.

    `fit(net, (x, y), (val_x, val_y), epochs=5, learning_rate=0.1, out_dir="runs/mine")`, called again in a later
    process with the same net and arrays, resumes the run. The run folder holds weights, but neither net nor arrays.
    A resume repeats every bit, except with dropout: a checkpoint cannot restore MindSpore's own random numbers.

    Args:
        net: the net, trained in place except parameters with `requires_grad = False`. Compile your own functions of the
            net after this call: on a CPU parameters may get new memory, and functions compiled before read the old.
        train: inputs and targets, two NumPy arrays [N, …] of any shape; float64 becomes float32. Targets that are
            integers [N] are classes; others need a loss of your own.
        validation: inputs and targets for validation, as `train`.
        loss: a loss of `Recipe`, or a function (outputs, targets) → the mean loss over the samples, a scalar tensor:
            a `def` or an nn.Cell. MindSpore does not compile partials, methods and many lambdas.
        settings: fields of `Recipe` and `RunOptions`; fields for this package's own nets and images are rejected.

    Returns:
        See `train`. The net has the weights of the last update; `load_weights(net, result.best_checkpoint)` loads the
        best ones. If targets are classes, the run folder gets a `report` of the best checkpoint, with the
        cross-entropy as its loss. Each call writes it anew, also that of a run which was complete.

    Raises:
        ValueError: settings or arrays cannot work, or the net or loss fails on two samples; raised before the first
            update. Also the errors of `train`.
    """
    splits = check_arrays(train, validation)
    recipe, options = _read_settings(splits[0], loss, settings)
    own_loss = None if isinstance(loss, str) else loss
    workers = process.start(options.device, options.threads, options.fast_math)
    classes = _try(net, own_loss, splits[0])
    if classes:
        check_labels(splits[0], len(classes), "train")
        check_labels(splits[1], len(classes), "validation")
    spec = InputSpec(name=OWN, classes=classes, channels=0, image_size=0, full_scale=1.0, mean=(), std=())
    dataset = DataSet(*splits, spec, notes=_notes(net), digest=digest(*splits))
    own = Own(net, dataset, None if own_loss is None else _in_float32(own_loss))
    check_data(workers, own.dataset, ("train", "test"))
    result = loop.train(recipe, options, own=own)
    if classes and result.best_checkpoint and not result.stopped:
        _report(own, recipe, options, workers, result)
    return result


def _read_settings(split: Arrays, loss: Loss | str, settings: dict[str, Any]) -> tuple[Recipe, RunOptions]:
    given = {"name": "fit", **settings}
    for name in _OF_RECIPES:
        if name in given:
            raise ValueError(f"{name}: is for this package's data sets and nets; leave it out")
    if given.get("monitor") == "map":
        raise ValueError("monitor: 'map' is for images of several classes; give top1, macro_f1 or loss")
    check_names(given, Recipe, RunOptions, what="fit")
    if not isinstance(loss, str) and not callable(loss):
        raise ValueError(f"loss: {loss!r} is neither a loss's name nor a function of outputs and targets")
    if isinstance(loss, nn.Cell) and loss.trainable_params():
        has = "has parameters to train, and fit trains the net's alone"
        raise ValueError(f"loss: {type(loss).__name__} {has}; make them part of the net, or requires_grad = False")
    if not are_classes(split.labels):
        targets = describe(split.labels)
        if isinstance(loss, str):
            raise ValueError(f"train: its targets are {targets}, {loss} takes integers [N]; give those, or a loss=")
        for name, value in (("monitor", "loss"), ("sampling", "shuffle")):
            if given.setdefault(name, value) != value:
                raise ValueError(f"{name}: {given[name]!r} is for classes, targets are {targets}; give {value}")
    if not isinstance(loss, str):
        given.setdefault("label_smoothing", 0.0)
    given |= {"model": OWN, "dataset": OWN, "loss": loss if isinstance(loss, str) else OWN}
    options = {name: given.pop(name) for name in [*given] if name in RunOptions.__dataclass_fields__}
    return Recipe(**given), RunOptions(**options)


def _in_float32(loss: Loss) -> Loss:
    def in_float32(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs, targets).astype(mindspore.float32)

    return in_float32


def _notes(net: nn.Cell) -> tuple[str, ...]:
    """Return a warning for the run's header if the net has dropout layers, which use MindSpore's random numbers."""
    names = []
    for name, cell in net.cells_and_names():
        if type(cell).__name__.startswith("Dropout"):
            rate = getattr(cell, "p", None)
            if rate or (rate is None and getattr(cell, "keep_prob", 1.0) < 1):
                names.append(name or type(cell).__name__)
    if not names:
        return ()
    why = "a checkpoint cannot restore MindSpore's random numbers, so a resumed run gets other bits"
    return (f"warning: dropout in {few(names)}: {why}",)


def _try(net: nn.Cell, loss: Loss | None, split: Arrays) -> tuple[str, ...]:
    """Compute net and loss of two samples; return the names of the classes, () if the targets are no classes.

    Raises:
        ValueError: the net or the loss fails, or returns a value of a wrong shape.
    """
    if not isinstance(net, nn.Cell) or not net.trainable_params():
        raise ValueError(f"net: {type(net).__name__} has no parameters to train; give an nn.Cell that has some")
    inputs, targets = Tensor(split.images[:2]), Tensor(split.labels[:2])
    net.set_train(False)
    what = "net"
    try:
        outputs = net(inputs)
        what = "loss"
        value = None if loss is None else loss(outputs, targets)
    except Exception as error:
        of = f"inputs {describe(inputs)} and targets {describe(targets)}"
        hint = f"; {_NO_CLASSES}" if what == "loss" and are_classes(split.labels) else ""
        raise ValueError(f"{what}: fails with {of}: {first_line(error)}{hint}") from error
    if loss is not None and getattr(value, "shape", None) != ():
        raise ValueError(f"loss: returns {_name(value)}; give the mean over the samples, a scalar tensor")
    if not are_classes(split.labels):
        return ()
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs) or outputs.shape[1] < 2:
        wanted = f"a logit for each class, [{len(inputs)}, classes]; {_NO_CLASSES}"
        raise ValueError(f"net: returns {_name(outputs)} for {len(inputs)} samples; give {wanted}")
    return tuple(map(str, range(outputs.shape[1])))


def _name(value: Any) -> str:
    return describe(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _report(own: Own, recipe: Recipe, options: RunOptions, workers: Workers, result: loop.TrainResult) -> None:
    """Write the report of the best checkpoint, or print why not; afterwards restore the net's weights.

    The report's loss is each sample's cross-entropy; a loss function given to `fit` only returns means over samples.
    """
    assert result.best_checkpoint is not None
    fault = ""
    try:
        checkpoint = load_checkpoint(result.best_checkpoint)
    except ValueError as error:  # a CheckpointError, or another format
        fault = str(error)
    # All ranks score, or none: a machine that does not share the disk has no checkpoint.
    if faults := [text for text in gather_texts(fault, workers) if text]:
        return _warn(faults[0], workers)
    parameters = tuple(own.net.get_parameters())
    last = copy_arrays(parameters)
    try:
        averaged = assign_checkpoint(own.net, checkpoint)
        trained = LoadedNet(own.net, recipe, own.dataset.input, checkpoint, averaged)
        step = make_eval_step(own.net, with_logits=True, jit=mindspore.jit if options.mode == "graph" else None)
        every = keeps_all_classes(own.dataset)
        scores = score(step, own.dataset, options.eval_batch_size, workers, all_classes=every)
        how = {"which": "best", "tta": "none", "ema": averaged, "image_size": 0}
        try:  # the run is complete: an error here must not lose its result
            write_report(Evaluation(trained, own.dataset, scores, how, workers), result.run / "report")
        except ValueError as error:
            _warn(str(error), workers)
    finally:
        assign(parameters, last)


def _warn(fault: str, workers: Workers) -> None:
    if workers.is_main:
        print(f"warning: no report of the run: {fault}", file=sys.stderr, flush=True)
