"""What one side of the ladder computes in a few updates, under its own names, and its task."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.mix import draw_mixing, mix
from resnet_fn.parity.layers.difference import CEILING
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.layers.record import leaves
from resnet_fn.update.schedule import make_schedule

Tree = Any  # an array, or a tuple, list or dict of trees
Batch = tuple[Tree, Tree]  # inputs, labels: NumPy arrays [n, …] of any dtype, or tuples or dicts of them
Arrays = dict[str, np.ndarray]
Rounding = dict[str, dict[str, float]]  # stage: name: relative error


@dataclasses.dataclass(frozen=True)
class Drop:
    """Where a net drops."""

    title: str  # the execution of a layer
    share: float  # that it drops
    once: bool | None  # whether it drops once in a call; None: the layer did not run
    scale: float = 0.0  # the factor of what it keeps; 0 if it does not drop by a mask, or that is not known
    shape: tuple[int, ...] = ()  # of its mask, 1 along axes on which the mask does not depend


@dataclasses.dataclass
class Probe:
    """What one side computes of one probe (`probes`)."""

    outputs: Arrays  # by name; a layer's first
    error: str  # why it computes nothing; empty if it does
    rounding: dict[str, float] = field(default_factory=dict)  # the reference's own, of each output
    further: tuple[float, ...] = ()  # norms of the net's inputs; of a layer its first one's size, the others' norms


Probes = dict[str, dict[str, Probe]]  # of each layer by name, "" for the net; by the probe's name
Dropping = tuple[Sequence[Drop], Sequence[Layer]]  # where a net drops; its executions in training mode, without dropout


def named_leaves(tree: Tree, single: str) -> dict[str, Any]:
    """Leaves by name: `single` where there is only one at the top, else "single 0", "single mask", "single 0 1"."""
    return {" ".join([single, *map(str, path)]): leaf for path, leaf in leaves(tree) if leaf is not None}


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The tree with `function` applied to every leaf; lists become tuples, and None, no labels, an empty one."""
    if tree is None:
        return ()
    if isinstance(tree, Mapping):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree)


def with_leaves(like: Tree, values: Arrays, tensor: Callable[[Any], Any]) -> Tree:
    """A tree like the outputs `like`, with `values`, by name, as tensors of the same types in place of its leaves."""
    names = iter(named_leaves(like, "logits"))

    def replaced(leaf: Any) -> Any:
        name = next(names)
        return tensor(values[name]).to(leaf.dtype) if name in values else leaf

    return map_tree(replaced, like)


def split(tree: Tree, parts: int) -> list[Tree]:
    """The tree's micro-batches: every leaf [n, …] in `parts` equal pieces along its first axis."""
    if parts == 1:
        return [tree]
    return [map_tree(lambda leaf: np.split(leaf, parts)[part], tree) for part in range(parts)]  # noqa: B023


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Batches of float32 images and int32 labels that can be learnt: each class has a pattern, under as much noise."""
    rng = np.random.default_rng([seed, 20])
    shape = (channels, image_size, image_size)
    patterns = rng.standard_normal((min(classes, 10), *shape)).astype(np.float32)
    batches = []
    for _ in range(updates):
        labels = rng.integers(0, len(patterns), batch_size).astype(np.int32)
        noise = rng.standard_normal((batch_size, *shape)).astype(np.float32)
        batches.append((np.ascontiguousarray((patterns[labels] + noise) * np.float32(0.7)), labels))
    return batches


def recipe_batches(recipe: Recipe, batches: Sequence[Batch], classes: int, seed: int) -> list[Batch]:
    """Repeat samples as in the recipe's repeated augmentation, and mix them by its mixup or CutMix.

    Mixed labels are probabilities, float32 [n, classes].
    """
    mixed = []
    for update, (images, labels) in enumerate(batches):
        rows = np.arange(len(images)) % (len(images) // recipe.repeats)
        images, labels = images[rows], labels[rows]
        if recipe.mixup or recipe.cutmix:
            rng = np.random.default_rng([seed, 21, update])
            mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:])
            images, labels = mix(images, labels, classes, mixing)
            if recipe.label_threshold:
                labels = (labels > recipe.label_threshold).astype(np.float32)
        mixed.append((images, labels))
    return mixed


def _check_batches(batches: Sequence[Batch], accumulate: int) -> None:
    """Raise a ValueError for batches that would recompile the step or do not divide."""
    if not isinstance(batches, list | tuple) or not batches:
        raise ValueError("batches: there are none; give a list with one (inputs, labels) for each update")
    first = None
    for index, batch in enumerate(batches):
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise ValueError(f"batches: batch {index} is {type(batch).__name__}; give a pair (inputs, labels)")
        arrays = named_leaves(batch[0], "inputs") | named_leaves(batch[1], "labels")
        for name, leaf in arrays.items():
            if not isinstance(leaf, np.ndarray) or (leaf.dtype != np.float32 and leaf.dtype.kind not in "iub"):
                what = f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
                words = f"batches: batch {index}, {name}: {what}"
                raise ValueError(f"{words}; give a NumPy array of float32, integers or bool")
        shapes = {name: f"{leaf.dtype} {list(leaf.shape)}" for name, leaf in arrays.items()}
        first = first or shapes
        for name in {**first, **shapes}:
            here, wanted = shapes.get(name, "none"), first.get(name, "none")
            if here != wanted:
                raise ValueError(f"batches: batch {index}, {name}: {here}; batch 0 has {wanted}; give all one shape")
    if accumulate == 1:  # then nothing need have the batch first: sequences, graphs, a number for all samples
        return
    sizes = {name: len(leaf) if leaf.ndim else 0 for name, leaf in arrays.items()}
    if len(set(sizes.values())) > 1:
        words = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(f"accumulate: {words}; give as many of each, or no micro-batches")
    size = next(iter(sizes.values()))
    if size % accumulate:
        raise ValueError(f"accumulate: {accumulate} does not divide the batch of {size}; give a divisor of {size}")


# Settings of a recipe that the reference does not follow.
_NOT_COMPARED = (
    *("class_weights", "head_learning_rate", "layer_decay", "freeze", "train_only", "sync_batchnorm", "multi_label"),
)

# Updates after which weights are compared. Later, some ReLU's input has rounded to the other side of 0, and the two
# trainings are different ones.
LATER = 5


@dataclasses.dataclass(frozen=True)
class Task:
    """The updates that both sides make; a ValueError names what the reference cannot follow, or does not fit."""

    recipe: Recipe  # optimizer, decay, loss, clipping, schedule, moving average, precision
    batches: Sequence[Batch]  # one (inputs, labels) for each update, all of one shape
    accumulate: int = 1  # micro-batches of each update
    seed: int = 0  # of random statistics, if they are fresh
    # own_loss, own_optimizer: whether a function of the user's replaces the recipe's
    own_loss: bool = False
    own_optimizer: bool = False

    def __post_init__(self) -> None:
        given = [name for name in _NOT_COMPARED if getattr(self.recipe, name) != getattr(Recipe, name)]
        if given:
            values = ", ".join(f"{name} {getattr(self.recipe, name)!r}" for name in given)
            raise ValueError(f"recipe: the ladder does not compare {values}; leave them out, or give another recipe")
        _check_batches(self.batches, self.accumulate)
        every, updates = self.recipe.ema_every, len(self.batches)
        if self.recipe.ema and every > updates:
            raise ValueError(f"ema_every: {every}: the average would not move in {updates} updates; give 1..{updates}")

    @property
    def rates(self) -> list[float]:
        """The learning rate of each update: the recipe's whole schedule, compressed into these updates."""
        schedule = make_schedule(self.recipe, self.updates_per_epoch)
        return [schedule(update) for update in range(len(self.batches))]

    @property
    def first(self) -> Batch:
        """The first micro-batch."""
        return split(tuple(self.batches[0]), self.accumulate)[0]

    @property
    def updates_per_epoch(self) -> float:
        """Updates of one epoch of the compressed schedule."""
        return len(self.batches) / self.recipe.epochs


@dataclasses.dataclass
class Trace:
    """The numbers that one side computes."""

    eval_outputs: Arrays  # of the first batch, in evaluation mode, before any update
    start: Arrays  # all parameters and statistics before the first update
    rates: list[float]  # the learning rate of each update
    after: list[Arrays] = field(default_factory=list)  # parameters and statistics after each of LATER updates
    train_outputs: list[Arrays] = field(default_factory=list)  # of each update's last micro-batch, before it
    losses: list[float] = field(default_factory=list)  # one for each update, before it
    norms: list[float] = field(default_factory=list)  # global gradient norm before clipping, one for each update
    gradients: Arrays = field(default_factory=dict)  # of update 1, the mean of micro-batches, before clipping
    clipped: Arrays = field(default_factory=dict)  # the same after clipping
    parts: list[Arrays] = field(default_factory=list)  # the same of each micro-batch, if there are several
    alone: dict[str, Arrays] = field(default_factory=dict)  # an own optimizer's changes, by update (`alone`)
    losses_alone: dict[str, float] = field(default_factory=dict)  # an own loss of other outputs, by case
    settings: dict[str, dict[str, float]] = field(default_factory=dict)  # the optimizer's, by parameter
    average: Arrays = field(default_factory=dict)  # the moving average after the last update, if there is one
    later: list["Trace"] = field(default_factory=list)  # of each further batch, with the first weights
    dropped: list["Trace"] = field(default_factory=list)  # update 1 once more, with masks, if a layer drops by one
    builds: list[Arrays] = field(default_factory=list)  # initial values of several nets (`several_builds`)
    # as `eval_outputs`, at the end of `after`: with the reference's weights, and the side's own state
    last_outputs: Arrays = field(default_factory=dict)
    # buffers that training has moved by then (PyTorch's side, without statistics), and the mode in which their first
    # values would change an output: "evaluation", "training" or ""
    moved: dict[str, str] = field(default_factory=dict)
    # Of one of several workers: the gradients that its all-reduce took and gave in update 1; what its share of that
    # update alone makes of statistics; the loss of that share, and in evaluation mode of the batch and of its parts
    sent: Arrays = field(default_factory=dict)
    received: Arrays = field(default_factory=dict)
    own_statistics: Arrays = field(default_factory=dict)
    own_losses: list[float] = field(default_factory=list)


# ReLU inputs within rounding of 0 are ties: float32 cannot decide on which side of 0 they lie, and with the ReLU's
# gradient every gradient below jumps. The reference runs again with every tie on its other side, to see how far.
SIGMAS = 4.0  # values may be off by several times the root mean square of the errors, in either net
_LEVELS = (2.0, 8.0, 32.0)  # a tie's width relative to the reference's own: ours may be that much less exact


# How far flipped ties change the reference, and how many there are, for a few widths from small to large: a trace is
# made before the other side is known.
Flipped = Mapping[float, Callable[[], tuple[Rounding, int]]]


def flip_widths(layers: Sequence[Layer]) -> list[float]:
    """The widths of ties for which the reference runs again, by its layers in training mode."""
    own = SIGMAS * max((one.output_rounding for one in layers if one.output_rounding < CEILING), default=0.0)
    return [level * own for level in _LEVELS]


class Wanted(NamedTuple):
    """What a search for causes shall have the reference compute: our arrays, each with the reference's rounding."""

    stage: str  # that differs first: of forward, loss or gradients
    layers: dict[str, tuple[np.ndarray, float]]  # outputs of the layers in its mode, by the reference's titles
    results: dict[str, tuple[np.ndarray, float]]  # outputs; or loss and gradients
    convert: Callable[[Any], Arrays]  # what the reference's run returns → arrays named as `results`


@dataclasses.dataclass
class Recording:
    """One side of the ladder, the contents of a trace folder."""

    framework: str  # "PyTorch 2.13.0", "MindSpore 2.10.0"
    task: Task  # the updates that it made
    initial: Arrays  # all parameters and statistics of the net as it was built
    layers: dict[str, list[Layer]]  # in mode "eval", "train" and "dropout" (with masks): before any update
    trace: Trace  # the numbers that it computed
    rounding: Rounding = field(default_factory=dict)  # against float64 (`stages.rounding`); empty: unknown
    flipped: Flipped = field(default_factory=dict)  # the same, with ties on their other side; {}: unknown
    search: Callable[[Wanted], list[str]] | None = None  # for causes, in words; None: there is no module at hand
    tied: list[tuple[str, ...]] = field(default_factory=list)  # parameters that are one array, by name
    trainable: list[str] = field(default_factory=list)  # the parameters that an update changes, by name
    constants: list[str] = field(default_factory=list)  # neither trained nor statistics: need no counterpart
    notes: list[str] = field(default_factory=list)  # changes that made the two comparable, a line each
    # of the process that recorded it (`environment`); empty: unknown
    environment: dict[str, str] = field(default_factory=dict)
    # whether outputs in evaluation mode differed from call to call, before dropout was set to 0
    random_eval: bool = False
    # what draws random numbers in training mode, with dropout set to 0 (`cut_random`); empty: nothing
    random_train: str = ""
    drops: list[Drop] | None = None  # its dropout before that (`drops_of`); None: not recorded
    probes: Probes = field(default_factory=dict)  # what it computes of other inputs; {}: not asked for
    # raises the rounding of the probes that are asked for, by layer; None: it is known
    measure_probes: Callable[[Mapping[str, Sequence[str]]], None] | None = None
    limits: list[str] = field(default_factory=list)  # of the reference's functions, that no number reaches; a line each
    file: str = ""  # of the user's net, "net.py, SHA-256 …"; empty for a net of this package's
    ranks: list[Trace] = field(default_factory=list)  # of each of several workers (`ranks.merge`), rank 0's is `trace`

    @property
    def dropping(self) -> Dropping:
        """`drops`, and the executions that they are of."""
        return self.drops or (), self.layers["train"]


STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


def parameter_roles(parameters: Sequence[tuple[str, Any]], untrained: Iterable[str]) -> dict[str, Any]:
    """Returns the fields `tied`, `trainable` and `constants` of a `Recording`, for either framework.

    `parameters` lists a shared parameter once under each of its names. `untrained` names what no update changes:
    statistics, position tables, masks.
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
    framework: str, task: Task, seen: Callable[[np.ndarray], np.ndarray], dropped: Sequence[Any], **recorded: Any
) -> Recording:
    """A `Recording` of either side, with `recorded` as further fields.

    `seen` maps an array to the net's input; `dropped` lists the dropout that was set to 0: (layer, attribute, share).
    """
    side = "the reference" if framework.startswith("PyTorch") else "the net"
    words = [f"{name}: {attribute}={share:g}" for name, attribute, share in dropped]
    asked = [f"{name}={share:g}" for name in ("dropout", "drop_path") if (share := getattr(task.recipe, name))]
    notes = [f"dropout is 0 in {side}: {few(words)}"] if words else []
    notes += [f"dropout is 0 on both sides; the recipe has {few(asked)}"] if asked else []
    task = dataclasses.replace(task, batches=[map_tree(seen, tuple(batch)) for batch in task.batches])
    return Recording(framework, task, notes=notes, **recorded)


def what_failed(side: str, inputs: Tree, error: Exception, fix: str) -> ValueError:
    """The error of a net that fails on its inputs, which it lists: "inputs ids int64 [4, 7], …"."""
    arrays = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in named_leaves(inputs, "inputs").items())
    return ValueError(f"{side}: it fails on {arrays} ({type(error).__name__}: {first_line(error)}); {fix}")


def loss_of_logits(side: str, like: Any, loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The recipe's loss as a function of outputs as `like`, of which it takes one.

    That is the only one, `logits` (a ModelOutput), or the first of our tuple; a ValueError names other outputs.
    """
    names, named = named_leaves(like, ""), isinstance(like, Mapping) and "logits" in like
    if len(names) > 1 and not named and (side != "the net" or isinstance(like, Mapping)):
        words = ", ".join(name.strip() for name in names)
        raise ValueError(f"loss of {side}: the outputs are {words}; give --loss FILE:FUNCTION, or return logits alone")
    path = ("logits",) if named else next(path for path, leaf in leaves(like) if leaf is not None)

    def of_logits(outputs: Any, labels: Any) -> Any:
        for key in path:
            outputs = outputs[key]
        return loss(outputs, labels)

    return of_logits


def check_scalar(side: str, value: Any, tensor: Any) -> None:
    """Raise a ValueError if a loss is not one number in a `tensor`, the framework's class."""
    if not isinstance(value, tensor) or np.prod(value.shape) != 1:
        what = f"shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"loss of {side}: it returns {what}, not one number; return the mean over the batch")
