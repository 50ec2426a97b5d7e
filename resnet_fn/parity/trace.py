"""The data of one side of the comparison: the task, the numbers of a few updates, and the recorded
layers.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import changed
from resnet_fn.data.mix import draw_mixing, mix
from resnet_fn.parity.layers.difference import CEILING
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.layers.record import leaves
from resnet_fn.update.schedule import make_schedule

Tree = Any  # an array, or a tuple, list or dict of trees
# inputs, labels: NumPy arrays [n, …] of any dtype, or tuples or dicts of them
Batch = tuple[Tree, Tree]
Arrays = dict[str, np.ndarray]
Rounding = dict[str, dict[str, float]]  # stage → name of an array → relative error


@dataclasses.dataclass(frozen=True)
class Drop:
    """A place where a net applies dropout."""

    title: str  # the title of a layer's execution
    share: float  # the dropout probability
    once: bool | None  # whether the layer drops once in each call; None if the layer did not run
    scale: float = 0.0  # the factor of the numbers that are kept; 0 if no mask is used or known
    shape: tuple[int, ...] = ()  # the mask's shape, 1 along axes on which the mask does not depend


@dataclasses.dataclass
class Probe:
    """The results of one side on one probe (a run of the net or of a layer on changed inputs)."""

    outputs: Arrays  # a net's outputs by name, or a layer's first output
    error: str  # why there are no outputs, or an empty string
    # the reference's rounding of each output
    rounding: dict[str, float] = field(default_factory=dict)
    further: tuple[float, ...] = ()  # numbers that differ if the two sides had different inputs


Probes = dict[str, dict[str, Probe]]  # layer's name ("" for the net) → probe's name → result
# a net's dropouts; its executions in training mode without dropout
Dropping = tuple[Sequence[Drop], Sequence[Layer]]


def named_leaves(tree: Tree, single: str) -> dict[str, Any]:
    """Return leaves by name, like "inputs 0" if `single` is "inputs".

    If the tree is a leaf, it is named `single`.
    """
    return {
        " ".join([single, *map(str, path)]): leaf for path, leaf in leaves(tree) if leaf is not None
    }


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return the tree with `function` applied to every leaf.

    Lists become tuples, and None becomes an empty tuple.
    """
    if tree is None:
        return ()
    if isinstance(tree, Mapping):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree)


def with_leaves(like: Tree, values: Arrays, tensor: Callable[[Any], Any]) -> Tree:
    """Return a copy of a net's outputs (`like`), with numbers taken by name from `values`.

    Types stay the same.
    """
    names = iter(named_leaves(like, "logits"))

    def replaced(leaf: Any) -> Any:
        name = next(names)
        return tensor(values[name]).to(leaf.dtype) if name in values else leaf

    return map_tree(replaced, like)


def split(tree: Tree, parts: int) -> list[Tree]:
    """Split a tree into micro-batches: every leaf [n, …] into equal pieces along the first axis."""
    if parts == 1:
        return [tree]
    return [map_tree(lambda leaf: np.split(leaf, parts)[part], tree) for part in range(parts)]  # noqa: B023


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Make batches of float32 images with int32 labels.

    An image is a random pattern of its class, plus noise.
    """
    rng = np.random.default_rng([seed, 20])
    shape = (channels, image_size, image_size)
    patterns = rng.standard_normal((min(classes, 10), *shape)).astype(np.float32)
    batches = []
    for _ in range(updates):
        labels = rng.integers(0, len(patterns), batch_size).astype(np.int32)
        noise = rng.standard_normal((batch_size, *shape)).astype(np.float32)
        batches.append((np.ascontiguousarray((patterns[labels] + noise) * np.float32(0.7)), labels))
    return batches


def recipe_batches(
    recipe: Recipe, batches: Sequence[Batch], classes: int, seed: int
) -> list[Batch]:
    """Apply the recipe's repeated augmentation and mixing.

    Mixed labels are probabilities, float32 [n, classes].
    """
    mixed = []
    for update, (images, labels) in enumerate(batches):
        rows = np.arange(len(images)) % (len(images) // recipe.repeats)
        images, labels = images[rows], labels[rows]
        if recipe.mixup or recipe.cutmix:
            rng = np.random.default_rng([seed, 21, update])
            mixing = draw_mixing(
                rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:]
            )
            images, labels = mix(images, labels, classes, mixing)
            if recipe.label_threshold:
                labels = (labels > recipe.label_threshold).astype(np.float32)
        mixed.append((images, labels))
    return mixed


def _check_batches(batches: Sequence[Batch], accumulate: int) -> None:
    """Raise ValueError if batches are not arrays of one shape and type, or do not divide into
    micro-batches.
    """
    if not isinstance(batches, list | tuple) or not batches:
        raise ValueError(
            "batches: there are none; give a list with one pair (inputs, labels) for each update"
        )
    first = None
    for index, batch in enumerate(batches):
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise ValueError(
                f"batches: batch {index} is {type(batch).__name__}; give a pair (inputs, labels)"
            )
        arrays = named_leaves(batch[0], "inputs") | named_leaves(batch[1], "labels")
        for name, leaf in arrays.items():
            if not isinstance(leaf, np.ndarray) or (
                leaf.dtype != np.float32 and leaf.dtype.kind not in "iub"
            ):
                got = (
                    f"an array of {leaf.dtype}"
                    if isinstance(leaf, np.ndarray)
                    else type(leaf).__name__
                )
                raise ValueError(
                    f"batches: {name} of batch {index} is {got}; give a NumPy array of float32, "
                    "integers or bool"
                )
        shapes = {name: f"{leaf.dtype} {list(leaf.shape)}" for name, leaf in arrays.items()}
        first = first or shapes
        for name in {**first, **shapes}:
            got, expected = shapes.get(name, "missing"), first.get(name, "missing")
            if got != expected:
                raise ValueError(
                    f"batches: {name} is {got} in batch {index}, but {expected} in batch 0; make "
                    "all batches alike"
                )
    if accumulate == 1:  # without micro-batches, no array needs a batch axis
        return
    sizes = {name: len(leaf) if leaf.ndim else 0 for name, leaf in arrays.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(
            f"accumulate: a batch has {counts}; give arrays of equal length, or set accumulate to 1"
        )
    size = next(iter(sizes.values()))
    if size % accumulate:
        raise ValueError(
            f"accumulate: {accumulate} does not divide batch size {size}; give a divisor of {size}"
        )


# Settings of a recipe that the reference ignores.
_NOT_COMPARED = (
    *(
        "class_weights",
        "head_lr_factor",
        "layer_decay",
        "freeze",
        "train_only",
        "sync_batchnorm",
        "multi_label",
    ),
)

# The number of updates after which weights are compared. Later, the input of a ReLU may have
# rounded to the other side of 0, and the two trainings diverge.
LATER = 5


@dataclasses.dataclass(frozen=True)
class Task:
    """The updates that both sides make.

    Raises ValueError if batches are wrong or settings cannot be compared.
    """

    recipe: Recipe  # optimizer, decay, loss, clipping, schedule, moving average, precision
    batches: Sequence[Batch]  # one (inputs, labels) for each update, all of one shape
    accumulate: int = 1  # micro-batches of each update
    seed: int = 0  # the seed of random numbers that replace initial values
    # own_loss, own_optimizer: whether a function of the user's replaces the recipe's
    own_loss: bool = False
    own_optimizer: bool = False

    def __post_init__(self) -> None:
        given = [
            name for name in _NOT_COMPARED if getattr(self.recipe, name) != getattr(Recipe, name)
        ]
        if given:
            got = ", ".join(f"{name} {getattr(self.recipe, name)!r}" for name in given)
            raise ValueError(
                f"recipe: the ladder does not compare {got}; omit these, or give another recipe"
            )
        if self.recipe.ema:  # torch's average, with which the ladder compares, has no warm-up
            object.__setattr__(self, "recipe", changed(self.recipe, ema_warmup=False))
        _check_batches(self.batches, self.accumulate)
        every, updates = self.recipe.ema_every, len(self.batches)
        if self.recipe.ema and every > updates:
            raise ValueError(
                f"ema_every: {every} is more than the {updates} updates, so the average never "
                f"moves; give 1..{updates}"
            )

    @property
    def rates(self) -> list[float]:
        """The learning rate of each update.

        The recipe's whole schedule is compressed into these updates.
        """
        schedule = make_schedule(self.recipe, self.updates_per_epoch)
        return [schedule(update) for update in range(len(self.batches))]

    @property
    def first(self) -> Batch:
        """The first micro-batch of the first batch."""
        return split(tuple(self.batches[0]), self.accumulate)[0]

    @property
    def updates_per_epoch(self) -> float:
        """The number of updates in one epoch of the compressed schedule."""
        return len(self.batches) / self.recipe.epochs


@dataclasses.dataclass
class Trace:
    """The numbers that one side of the comparison computes in the updates of a task."""

    eval_outputs: Arrays  # outputs on the first batch, in evaluation mode, before any update
    start: Arrays  # all parameters and statistics before the first update
    rates: list[float]  # the learning rate of each update
    # parameters and statistics after each of LATER updates
    after: list[Arrays] = field(default_factory=list)
    # on each update's last micro-batch, before the update
    train_outputs: list[Arrays] = field(default_factory=list)
    # one for each update, computed before the update
    losses: list[float] = field(default_factory=list)
    # global gradient norm before clipping, one for each update
    norms: list[float] = field(default_factory=list)
    # in update 1, mean over micro-batches, before clipping
    gradients: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)  # `gradients` after clipping
    # `gradients` of each micro-batch, if there are several
    parts: list[Arrays] = field(default_factory=list)
    # changes by the optimizer alone, by update (`alone`)
    alone: dict[str, Arrays] = field(default_factory=dict)
    # the loss on other outputs, by case
    losses_alone: dict[str, float] = field(default_factory=dict)
    # of the optimizer, by parameter
    settings: dict[str, dict[str, float]] = field(default_factory=dict)
    # the moving average after the last update, if there is one
    average: Arrays = field(default_factory=dict)
    # of each further batch, with the weights `start`
    later: list["Trace"] = field(default_factory=list)
    # update 1 again, with masks, if a layer uses one
    dropped: list["Trace"] = field(default_factory=list)
    # initial values of several nets (`several_builds`)
    builds: list[Arrays] = field(default_factory=list)
    # like `eval_outputs`, after the updates of `after`: with the reference's weights and this
    # side's other state
    last_outputs: Arrays = field(default_factory=dict)
    # PyTorch's buffers (without statistics) that these updates have changed → the mode in which the
    # buffer's first values would change an output: "evaluation", "training", or "" if neither
    moved: dict[str, str] = field(default_factory=dict)
    # For one of several workers: the gradients that its all-reduce took and returned in update 1;
    # the statistics after its own part of that batch alone; the losses of this part, and in
    # evaluation mode of the batch and of all parts
    sent: Arrays = field(default_factory=dict)
    received: Arrays = field(default_factory=dict)
    own_statistics: Arrays = field(default_factory=dict)
    own_losses: list[float] = field(default_factory=list)


# A ReLU input within rounding of 0 is a tie. float32 cannot decide on which side of 0 a tie lies,
# and the side changes all gradients below. The reference runs again with every tie on the other
# side, to measure how far they change.
SIGMAS = 4.0  # a single value may have several times the root mean square error, in either net
_LEVELS = (2.0, 8.0, 32.0)  # widths of a tie, in units of the reference's error; ours may be larger


# Width of a tie → a function that returns the reference's changes with flipped ties, and the number
# of ties. There are several widths, because the other side's errors are not known yet.
Flipped = Mapping[float, Callable[[], tuple[Rounding, int]]]


def flip_widths(layers: Sequence[Layer]) -> list[float]:
    """Return widths of ties for `flip_ties`.

    A tie is a ReLU input so near to 0 that rounding may change its sign.
    """
    own = SIGMAS * max(
        (one.output_rounding for one in layers if one.output_rounding < CEILING), default=0.0
    )
    return [level * own for level in _LEVELS]


class Wanted(NamedTuple):
    """The port's arrays, which a search for causes tries to compute with the reference's module."""

    stage: str  # the first stage that differs: a forward stage, loss or gradients
    layers: dict[str, tuple[np.ndarray, float]]  # outputs of layers, by the reference's titles
    results: dict[str, tuple[np.ndarray, float]]  # the net's outputs, or loss and gradients
    convert: Callable[[Any], Arrays]  # what the reference's run returns → arrays named as `results`


@dataclasses.dataclass
class Recording:
    """Everything that is recorded of one side of the comparison.

    A trace folder contains one recording.
    """

    framework: str  # "PyTorch 2.13.0", "MindSpore 2.10.0"
    task: Task  # the updates that were made
    initial: Arrays  # all parameters and statistics of the net as it was built
    # by mode, "eval", "train", "dropout" (with masks); before any update
    layers: dict[str, list[Layer]]
    trace: Trace  # the numbers that were computed
    # errors against float64 (`stages.rounding`); {}: unknown
    rounding: Rounding = field(default_factory=dict)
    # errors with flipped ties, by width; {}: unknown
    flipped: Flipped = field(default_factory=dict)
    # for causes, a line each; None: there is no module
    search: Callable[[Wanted], list[str]] | None = None
    # parameters that are one array, by name
    tied: list[tuple[str, ...]] = field(default_factory=list)
    # the parameters that an update changes, by name
    trainable: list[str] = field(default_factory=list)
    # arrays that need no counterpart: not trained, no statistics
    constants: list[str] = field(default_factory=list)
    # changes that made both sides comparable, a line each
    notes: list[str] = field(default_factory=list)
    # the environment of the process that recorded (`environment`); empty: unknown
    environment: dict[str, str] = field(default_factory=dict)
    # whether outputs in evaluation mode differ from call to call, before dropout is set to 0
    random_eval: bool = False
    # what draws random numbers in training mode, with dropout set to 0; empty if nothing does
    random_train: str = ""
    drops: list[Drop] | None = None  # the net's dropouts (`drops_of`); None: not recorded
    probes: Probes = field(default_factory=dict)  # results on other inputs; {}: not computed
    # measures the rounding of the asked probes, by layer; None if the rounding is known
    measure_probes: Callable[[Mapping[str, Sequence[str]]], None] | None = None
    # limits of the reference's functions that no number reaches
    limits: list[str] = field(default_factory=list)
    file: str = ""  # the user's file, "net.py, SHA-256 …"; empty for a net of this package
    # the trace of each of several workers; rank 0 has `trace`
    ranks: list[Trace] = field(default_factory=list)

    @property
    def dropping(self) -> Dropping:
        """A pair of the net's dropouts and its layers' executions in training mode with dropout
        switched off.
        """
        return self.drops or (), self.layers["train"]


STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


def parameter_roles(
    parameters: Sequence[tuple[str, Any]], untrained: Iterable[str]
) -> dict[str, Any]:
    """Return the fields `tied`, `trainable` and `constants` of a `Recording`, for either framework.

    `parameters` has pairs (name, parameter), with a shared parameter under each of its names.
    `untrained` has the names of arrays that no optimizer updates.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in parameters:
        names.setdefault(id(parameter), []).append(name)
    return {
        "tied": [tuple(group) for group in names.values() if len(group) > 1],
        "trainable": [name for name, parameter in parameters if parameter.requires_grad],
        "constants": [name for name in untrained if name.rpartition(".")[2] not in STATISTICS],
    }


def make_recording(
    framework: str,
    task: Task,
    seen: Callable[[np.ndarray], np.ndarray],
    dropped: Sequence[Any],
    **recorded: Any,
) -> Recording:
    """Make the `Recording` of one side, with notes about dropout. `recorded` has further fields.

    `seen` converts an array of the batches to the framework's tensor and back. `dropped` has tuples
    (layer, attribute, probability) of the dropouts that are switched off.
    """
    side = "the reference" if framework.startswith("PyTorch") else "the net"
    words = [f"{name}: {attribute}={share:g}" for name, attribute, share in dropped]
    asked = [
        f"{name}={share:g}"
        for name in ("dropout", "drop_path")
        if (share := getattr(task.recipe, name))
    ]
    notes = [f"dropout is 0 in {side}: {few(words)}"] if words else []
    notes += [f"dropout is 0 on both sides; the recipe has {few(asked)}"] if asked else []
    task = dataclasses.replace(
        task, batches=[map_tree(seen, tuple(batch)) for batch in task.batches]
    )
    return Recording(framework, task, notes=notes, **recorded)


def what_failed(side: str, inputs: Tree, error: Exception, fix: str) -> ValueError:
    """Return a ValueError for a net that fails on its inputs with `error`.

    The message lists the inputs.
    """
    arrays = ", ".join(
        f"{name} {x.dtype} {list(x.shape)}" for name, x in named_leaves(inputs, "inputs").items()
    )
    return ValueError(
        f"{side}: it fails on {arrays} ({type(error).__name__}: {first_line(error)}); {fix}"
    )


def loss_of_logits(
    side: str, like: Any, loss: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Return the recipe's loss as a function of a net's whole outputs and labels. `like` is an
    example of the outputs.

    The loss is computed from the output "logits", the only output, or the first output of a
    MindSpore net's tuple.
    """
    leaf_names, named = named_leaves(like, ""), isinstance(like, Mapping) and "logits" in like
    if len(leaf_names) > 1 and not named and (side != "the net" or isinstance(like, Mapping)):
        names = ", ".join(name.strip() for name in leaf_names)
        raise ValueError(
            f"loss of {side}: the outputs are {names}; give --loss FILE:FUNCTION, or return logits "
            "alone"
        )
    path = ("logits",) if named else next(path for path, leaf in leaves(like) if leaf is not None)

    def of_logits(outputs: Any, labels: Any) -> Any:
        for key in path:
            outputs = outputs[key]
        return loss(outputs, labels)

    return of_logits


def check_scalar(side: str, value: Any, tensor: Any) -> None:
    """Raise ValueError if a loss is not one number in a tensor.

    `tensor` is the framework's tensor class.
    """
    if not isinstance(value, tensor) or np.prod(value.shape) != 1:
        got = f"shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(
            f"loss of {side}: it must return one number, but it returns {got}; return the batch's "
            "mean"
        )
