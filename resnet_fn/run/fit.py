"""`fit` trains a caller's own net on arrays, with the same loop as `train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore
from mindspore import nn

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.parameters import assign, copy_arrays
from resnet_fn.config.declaration import CUSTOM
from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.rules import NOT_OF_FIT
from resnet_fn.config.setting_names import check_names
from resnet_fn.config.wording import first_few, first_line
from resnet_fn.data.agreement import check_data
from resnet_fn.data.dataset import Arrays, DataSet, check_labels
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.arrays import (
    are_classes,
    check_arrays,
    describe,
    digest,
    how_to_make_classes,
)
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.evaluate import Evaluation, keeps_all_classes
from resnet_fn.evaluation.loaded_net import LoadedNet, assign_checkpoint
from resnet_fn.evaluation.scoring import score
from resnet_fn.models.untrained import saved_state
from resnet_fn.report.writer import check_report, write_report
from resnet_fn.run import loop
from resnet_fn.run.build import Custom
from resnet_fn.run.custom_net import check_saveable
from resnet_fn.run.trial import check_loss, check_net, in_float32, try_call
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, gather_texts
from resnet_fn.update.loss import Loss

_OF_RECIPES = (
    "model",
    "dataset",
    "multi_label",
    "which",
    "loss_scale",
    "loss_scale_interval",
    "max_skips",
)

_REPORT = "report"  # folder in the run folder


def fit(
    net: nn.Cell,
    train: Sequence[Any],
    validation: Sequence[Any],
    loss: Loss | str = "cross_entropy",
    **settings: Any,
) -> loop.TrainResult:
    """Train a net of your own on arrays, with the same loop, run folder and checkpoints as `train`.

        result = resnet_fn.fit(net, (x, y), (val_x, val_y), epochs=5, learning_rate=0.1,
        out_dir="runs/mine")

    A later call with the same arguments, including `out_dir`, resumes the run, and computes the
    same bits as a run without a stop. With dropout, the bits differ, because a checkpoint cannot
    restore MindSpore's random numbers.

    Args:
        net: the net, which is trained in place. Parameters with `requires_grad = False` are not
            trained. On a CPU, `fit` may move the parameters to new memory. Functions compiled
            before `fit` still read the old memory.
        train: inputs and targets, two NumPy arrays [N, …]. Arrays of float64 are converted to
            float32. Integer targets [N] are classes. Other targets need a loss of your own.
        validation: inputs and targets for validation, in the format of the argument `train`.
        loss: a value of `Recipe.loss`, or a function of (outputs, targets) that returns the mean
            loss over the samples, a scalar tensor. Use a `def` or an nn.Cell. MindSpore can compile
            a lambda only if it has a line of its own.
        settings: settings of `Recipe` and `RunOptions`, except those for this package's own nets and
            images.

    Returns:
        The result of `train`. Afterwards, `net` has the weights of the last update. To load the
        best weights, call `load_weights(net, result.best_checkpoint)`. If the targets are classes,
        the run folder gets a `report` of the best checkpoint. The loss in the report is the
        cross-entropy. Each call writes the report anew, unless a signal stops the run. The run
        folder contains neither the net nor the arrays.

    Raises:
        ValueError: if settings or arrays are invalid, or if the net or the loss fails in a trial
            call with two samples before the first update. For other errors, see `train`.
    """
    check_net(net)
    check_saveable(net)
    check_loss(loss)
    splits = check_arrays(train, validation)
    recipe, options = _read_settings(splits[0], loss, settings)
    custom_loss = None if isinstance(loss, str) else loss
    workers = process.start(options.device, options.threads, options.fast_math)
    if options.out_dir and workers.is_main:
        check_report("out_dir", Path(options.out_dir, _REPORT))
    classes = try_call(net, custom_loss, splits[0], compiled=options.mode == "graph")
    if classes:
        check_labels(splits[0], len(classes), "train")
        check_labels(splits[1], len(classes), "validation")
    spec = InputSpec(
        name=CUSTOM, classes=classes, channels=0, image_size=0, full_scale=1.0, mean=(), std=()
    )
    dataset = DataSet(*splits, spec, notes=_notes(net), digest=digest(*splits))
    custom = Custom(net, dataset, None if custom_loss is None else in_float32(custom_loss))
    check_data(workers, custom.dataset, ("train", "test"))
    result = loop.train(recipe, options, custom=custom)
    if classes and result.best_checkpoint and not result.stopped:
        _report(custom, recipe, options, workers, result)
    return result


def _read_settings(
    split: Arrays, loss: Loss | str, settings: dict[str, Any]
) -> tuple[Recipe, RunOptions]:
    chosen = {"name": "fit", **settings}
    for name in _OF_RECIPES:
        if name in chosen:
            raise ValueError(
                f"{name}: this setting is only for this package's data sets and nets; leave it out"
            )
    if chosen.get("monitor") == "map":
        raise ValueError(
            "monitor: 'map' needs images with several labels; give top1, macro_f1 or loss"
        )
    check_names(
        chosen,
        Recipe.declarations | RunOptions.declarations,
        caller="fit",
        useless={*_OF_RECIPES, *NOT_OF_FIT.split()},
    )
    if not are_classes(split.labels):
        got = describe(split.labels)
        if isinstance(loss, str):
            fix = how_to_make_classes(split.labels) or "give ints or a loss function"
            raise ValueError(f"train: targets are {got}, but {loss} takes integers [N]; {fix}")
        for name, allowed in (("monitor", "loss"), ("sampling", "shuffle")):
            if chosen.setdefault(name, allowed) != allowed:
                raise ValueError(
                    f"{name}: {chosen[name]!r} needs classes, but targets are {got}; give "
                    f"{allowed!r}"
                )
    if not isinstance(loss, str):
        chosen.setdefault("label_smoothing", 0.0)
    chosen |= {
        "model": CUSTOM,
        "dataset": CUSTOM,
        "loss": loss if isinstance(loss, str) else CUSTOM,
    }
    options = {name: chosen.pop(name) for name in [*chosen] if name in RunOptions.declarations}
    return Recipe(**chosen), RunOptions(**options)


def _notes(net: nn.Cell) -> tuple[str, ...]:
    """Return a warning for the run's header if the net has dropout layers."""
    names = []
    for name, cell in net.cells_and_names():
        if type(cell).__name__.startswith("Dropout"):
            rate = getattr(cell, "p", None)
            if rate or (rate is None and getattr(cell, "keep_prob", 1.0) < 1):
                names.append(name or type(cell).__name__)
    why = (
        "a checkpoint cannot restore MindSpore's random numbers, so a resumed run differs from "
        "one without a stop"
    )
    return (f"warning: dropout in {first_few(names)}: {why}",) if names else ()


def _report(
    custom: Custom, recipe: Recipe, options: RunOptions, workers: Workers, result: loop.TrainResult
) -> None:
    """Write the report of the best checkpoint, or print a warning.

    Afterwards the net has its last weights again.
    """
    assert result.best_checkpoint is not None
    fault = ""
    try:
        checkpoint = load_checkpoint(result.best_checkpoint)
    except (ValueError, OSError) as error:
        fault = str(error)
    # All workers score, or none: a machine that does not share the disk has no checkpoint.
    if faults := [text for text in gather_texts(fault, workers) if text]:
        return _warn(faults[0], workers)
    state = saved_state(custom.net)
    last = copy_arrays(state)
    try:
        averaged = assign_checkpoint(custom.net, checkpoint)
        trained = LoadedNet(custom.net, recipe, custom.dataset.input, checkpoint, averaged)
        step = make_eval_step(
            custom.net, with_logits=True, jit=mindspore.jit if options.mode == "graph" else None
        )
        scores = score(
            step,
            custom.dataset,
            options.eval_batch_size,
            workers,
            all_classes=keeps_all_classes(custom.dataset),
        )
        how = {"which": "best", "tta": "none", "ema": averaged, "image_size": 0}
        try:  # the run is complete: an error here must not lose its result
            write_report(
                Evaluation(trained, custom.dataset, scores, how, workers), result.run / _REPORT
            )
        except Exception as error:
            _warn(first_line(error), workers)
    finally:
        assign(state, last)


def _warn(fault: str, workers: Workers) -> None:
    if workers.is_main:
        warn(f"no report of the run: {fault}")
