"""Training of a caller's own net on arrays, by the loop that trains recipes."""

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.parameters import assign, copy_arrays
from resnet_fn.config.fields import OWN, aliases
from resnet_fn.config.hints import closest, first_line
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.agreement import check_data
from resnet_fn.data.dataset import Arrays, DataSet, check_labels
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.arrays import are_classes, check_arrays, describe, digest
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.loaded_net import LoadedNet, assign_checkpoint
from resnet_fn.evaluation.scoring import score
from resnet_fn.report.writer import write_report
from resnet_fn.run import loop
from resnet_fn.run.build import Own
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.loss import Loss


def fit(
    net: nn.Cell, train: Sequence[Any], validation: Sequence[Any], loss: Loss | str = "cross_entropy", **settings: Any
) -> loop.TrainResult:
    """Train a net of your own on arrays, by the loop of `train`: the same run folder, checkpoints and exact resume.

    `fit(net, (x, y), (val_x, val_y), epochs=5, learning_rate=0.1, out_dir="runs/mine")`, called again in a later
    process with the same net and arrays, resumes the run. The run folder holds weights, but neither net nor arrays.

    Args:
        net: is trained in place, except parameters of `requires_grad = False`.
        train: inputs and targets, two NumPy arrays [N, …] of any shape; float64 becomes float32. Targets that are
            integers [N] are classes; others need a loss of your own.
        validation: the same, for validation.
        loss: a loss of `Recipe`, or a function (outputs, targets) → the mean loss over the samples, a scalar tensor.
        settings: fields of `Recipe` and `RunOptions`; those of this package's own nets and images are rejected.

    Returns:
        See `train`. The net has the weights of the last update; `load_weights(net, result.best_checkpoint)` loads the
        best ones. If targets are classes, the run folder gets a `report` of the best checkpoint.

    Raises:
        ValueError: before the first update, for whatever cannot work; and what `train` raises.
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
    own = Own(net, DataSet(*splits, spec, digest=digest(*splits)), own_loss)
    check_data(workers, own.dataset, ("train", "test"))
    result = loop.train(recipe, options, own=own)
    if classes and result.best_checkpoint and not result.stopped:
        _report(own, recipe, options, workers, result)
    return result


def _read_settings(split: Arrays, loss: Loss | str, settings: dict[str, Any]) -> tuple[Recipe, RunOptions]:
    given = {"name": "fit", **settings}
    for name in ("model", "dataset"):
        if name in given:
            raise ValueError(f"{name}: fit trains the net and the arrays that it is given; leave it out")
    fields, options = Recipe.__dataclass_fields__, RunOptions.__dataclass_fields__
    for name in given.keys() - fields.keys() - options.keys():
        ours = (aliases(Recipe) | aliases(RunOptions)).get(name)
        hint = f"did you mean {ours}?" if ours else closest(name, [*fields, *options])
        raise ValueError(f"fit: unknown setting {name!r}; {hint}")
    if not isinstance(loss, str) and not callable(loss):
        raise ValueError(f"loss: {loss!r} is neither a loss's name nor a function of outputs and targets")
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
    recipe = Recipe(**{name: value for name, value in given.items() if name in fields})
    return recipe, RunOptions(**{name: value for name, value in given.items() if name in options})


def _try(net: nn.Cell, loss: Loss | None, split: Arrays) -> tuple[str, ...]:
    """Compute net and loss of two samples, and return the names of the classes; () if the targets are none.

    Raises:
        ValueError: net or loss cannot compute them, or return something of another shape.
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
        raise ValueError(f"{what}: fails with {of}: {first_line(error)}") from error
    if loss is not None and getattr(value, "shape", None) != ():
        raise ValueError(f"loss: returns {_name(value)}; give the mean over the samples, a scalar tensor")
    if not are_classes(split.labels):
        return ()
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
        wanted = f"a logit for each class, [{len(inputs)}, classes]"
        raise ValueError(f"net: returns {_name(outputs)} for {len(inputs)} samples; give {wanted}")
    return tuple(map(str, range(outputs.shape[1])))


def _name(value: Any) -> str:
    return describe(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _report(own: Own, recipe: Recipe, options: RunOptions, workers: Workers, result: loop.TrainResult) -> None:
    """Write the report of the best checkpoint; the net has its own weights again after it."""
    assert result.best_checkpoint is not None
    parameters = tuple(own.net.get_parameters())
    checkpoint, last = load_checkpoint(result.best_checkpoint), copy_arrays(parameters)
    averaged = assign_checkpoint(own.net, checkpoint)
    trained = LoadedNet(own.net, recipe, own.dataset.input, checkpoint, averaged)
    step = make_eval_step(own.net, with_logits=True, loss=own.loss)
    size, fills = options.eval_batch_size, own.loss is None
    scores = score(step, own.dataset, size, workers, all_classes=True, fills=fills)
    how = {"which": "best", "tta": "none", "ema": averaged, "image_size": 0}
    write_report(Evaluation(trained, own.dataset, scores, how, workers), result.run / "report")
    assign(parameters, last)
