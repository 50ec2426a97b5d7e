"""What one side of the ladder computes in a few updates, under its own names, and what it was told to do."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.mix import draw_mixing, mix
from resnet_fn.layers.difference import CEILING
from resnet_fn.layers.layer import Layer
from resnet_fn.update.schedule import make_schedule

Tree = Any  # an array, or a tuple, list or dict of trees
Batch = tuple[Tree, Tree]  # inputs, labels: NumPy arrays [n, …] of any dtype, or tuples or dicts of them
Arrays = dict[str, np.ndarray]
Drop = tuple[str, float, bool]  # layer, share, whether it drops once in a call
Rounding = dict[str, dict[str, float]]  # stage: name: relative error


def leaves(tree: Tree) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every leaf with the keys that lead to it: ((), x) of a single array, (("mask",), x) of a dict's entry."""
    if isinstance(tree, Mapping):
        pairs: Iterator[tuple[Any, Any]] = iter(tree.items())
    elif isinstance(tree, tuple | list):
        pairs = iter(enumerate(tree))
    else:
        yield (), tree
        return
    for key, branch in pairs:
        for path, leaf in leaves(branch):
            yield (key, *path), leaf


def named_leaves(tree: Tree, single: str) -> dict[str, Any]:
    """Leaves by name: `single` where there is only one at the top, else "single 0", "single mask", "single 0 1"."""
    return {" ".join([single, *map(str, path)]): leaf for path, leaf in leaves(tree)}


def describe(tree: Tree) -> str:
    """Every leaf's name, type and shape: "inputs mask bool [4, 7], inputs ids int64 [4, 7]"."""
    return ", ".join(f"{name} {leaf.dtype} {list(leaf.shape)}" for name, leaf in named_leaves(tree, "inputs").items())


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The same tree with every leaf changed; lists become tuples."""
    if isinstance(tree, Mapping):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree)


def split(tree: Tree, parts: int) -> list[Tree]:
    """The tree's micro-batches: every leaf [n, …] in so many equal pieces along its first axis."""
    return [map_tree(lambda leaf: np.split(leaf, parts)[part], tree) for part in range(parts)]  # noqa: B023


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Random batches that can be learnt: each class has its own pattern, under as much noise.

    With labels that have no relation to the images the loss would stay where it is, and its trajectory prove little.

    Returns:
        `updates` pairs of images float32 [batch_size, channels, image_size, image_size] and labels int32
        [batch_size].
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


def recipe_batches(recipe: Recipe, batches: Sequence[Batch], classes: int, seed: int) -> list[Batch]:
    """Batches as the recipe feeds them: samples repeated as in repeated augmentation, mixed by mixup or CutMix.

    Labels that are mixed become probabilities, float32 [n, classes].
    """
    found = []
    for update, (images, labels) in enumerate(batches):
        rows = np.arange(len(images)) % (len(images) // recipe.repeats)
        images, labels = images[rows], labels[rows]
        if recipe.mixup or recipe.cutmix:
            rng = np.random.default_rng([seed, 21, update])
            mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:])
            images, labels = mix(images, labels, classes, mixing)
            if recipe.label_threshold:
                labels = (labels > recipe.label_threshold).astype(np.float32)
        found.append((images, labels))
    return found


def check_batches(batches: Sequence[Batch], accumulate: int) -> None:
    """Refuse batches that would recompile the step or do not divide.

    Raises:
        ValueError: names the batch, its size and the fix.
    """
    if not isinstance(batches, list | tuple) or not batches:
        raise ValueError("batches: there are none; give a list with one (inputs, labels) for each update")
    first = None
    for index, batch in enumerate(batches):
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise ValueError(f"batches: batch {index} is {type(batch).__name__}; give a pair (inputs, labels)")
        shapes = {}
        for path, leaf in leaves(tuple(batch)):
            words = " ".join(["inputs" if path[0] == 0 else "labels", *map(str, path[1:])])
            taken = isinstance(leaf, np.ndarray) and (leaf.dtype == np.float32 or leaf.dtype.kind in "iub")
            if not taken or leaf.ndim == 0:
                what = f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
                raise ValueError(
                    f"batches: batch {index}, {words}: {what}; give a NumPy array [n, …] of float32, integers or bool"
                )
            shapes[words] = (leaf.shape, leaf.dtype)
        first = first or shapes
        if shapes != first:
            words = next(name for name in {**first, **shapes} if shapes.get(name) != first.get(name))
            found, wanted = _shape(shapes.get(words)), _shape(first.get(words))
            raise ValueError(f"batches: batch {index}, {words}: {found}; batch 0 has {wanted}; give all one shape")
    sizes = {name: shape[0] for name, (shape, _) in (first or {}).items()}
    if len(set(sizes.values())) > 1:
        words = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(f"batches: {words}; give as many of each")
    size = next(iter(sizes.values()))
    if size % accumulate:
        raise ValueError(f"accumulate: {accumulate} does not divide the batch of {size}; give a divisor of {size}")


def _shape(found: Any) -> str:
    return "none" if found is None else f"{found[1]} {list(found[0])}"


# What a recipe may say of its updates and the reference's side does not do: refused, not left out.
_NOT_COMPARED = (
    *("class_weights", "head_learning_rate", "layer_decay", "freeze", "train_only", "sync_batchnorm", "multi_label"),
)

# Weights are followed for so many updates. Later, one ReLU whose input rounds to the other side of 0 somewhere on the
# way has made them two different trainings.
LATER = 5


@dataclasses.dataclass(frozen=True)
class Task:
    """What both sides are told to do: the same updates.

    Attributes:
        recipe: optimizer, decay, loss, clipping, schedule, moving average, precision.
        batches: one (inputs, labels) for each update, all of one shape.
        accumulate: micro-batches of each update.
        seed: of random statistics, where they are fresh.
        own_loss, own_optimizer: whether a function of the user's takes the place of the recipe's.

    Raises:
        ValueError: from the constructor: a setting that the reference cannot follow, batches that do not fit, a moving
            average that would not move in them.
    """

    recipe: Recipe
    batches: Sequence[Batch]
    accumulate: int = 1
    seed: int = 0
    own_loss: bool = False
    own_optimizer: bool = False

    def __post_init__(self) -> None:
        given = [name for name in _NOT_COMPARED if getattr(self.recipe, name) != getattr(Recipe, name)]
        if given:
            values = ", ".join(f"{name} {getattr(self.recipe, name)!r}" for name in given)
            raise ValueError(f"recipe: the ladder does not compare {values}; leave them out, or give another recipe")
        check_batches(self.batches, self.accumulate)
        every, updates = self.recipe.ema_every, len(self.batches)
        if self.recipe.ema and every > updates:
            raise ValueError(f"ema_every: {every}: the average would not move in {updates} updates; give 1..{updates}")

    @property
    def dropped(self) -> list[str]:
        """What the recipe would drop, and neither side does: "dropout=0.1"."""
        shares = {name: getattr(self.recipe, name) for name in ("dropout", "drop_path")}
        return [f"{name}={share:g}" for name, share in shares.items() if share]

    @property
    def rates(self) -> list[float]:
        """The learning rate of each update: the recipe's whole schedule, warm-up to end, compressed into them."""
        schedule = make_schedule(self.recipe, self.updates_per_epoch)
        return [schedule(update) for update in range(len(self.batches))]

    @property
    def updates_per_epoch(self) -> float:
        """What durations in epochs are multiplied by: the recipe's epochs are compressed into the updates."""
        return len(self.batches) / self.recipe.epochs


@dataclasses.dataclass
class Trace:
    """What one side computes in a few updates.

    Attributes:
        eval_outputs: of the first batch, in evaluation mode, before any update.
        start: all parameters and statistics before the first update.
        rates: the learning rate of each update.
        after: all parameters and statistics after each of the first LATER updates.
        train_outputs: of each update's last micro-batch, in training mode, before it.
        losses: one for each update, before it.
        norms: global gradient norm before clipping, one for each update.
        gradients: of the first update, the mean over its micro-batches, before clipping.
        clipped: the same after clipping.
        parts: the gradients of each micro-batch of the first update, before clipping; empty where there is one only.
        state: the optimizer's state after the first update, by kind ("momentum", "variance") and parameter.
        second: the same after the second update; empty where there is one only.
        settings: how the optimizer came, by setting and parameter; empty for a function of gradients.
        average: the weights' moving average after the last update; empty where there is none.
    """

    eval_outputs: Arrays
    start: Arrays
    rates: list[float]
    after: list[Arrays] = dataclasses.field(default_factory=list)
    train_outputs: list[Arrays] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)
    norms: list[float] = dataclasses.field(default_factory=list)
    gradients: Arrays = dataclasses.field(default_factory=dict)
    clipped: Arrays = dataclasses.field(default_factory=dict)
    parts: list[Arrays] = dataclasses.field(default_factory=list)
    state: dict[str, Arrays] = dataclasses.field(default_factory=dict)
    second: dict[str, Arrays] = dataclasses.field(default_factory=dict)
    settings: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    average: Arrays = dataclasses.field(default_factory=dict)


# Inputs of a ReLU within rounding of 0 are ties: on which side of 0 they lie, float32 cannot decide, and the ReLU's
# gradient jumps there, and with it every gradient below. How far apart the gradients may then be is computed: the
# reference runs once more, with every tie on its other side.
SIGMAS = 4.0  # values are off by up to several times the root mean square of the errors, of either net
_LEVELS = (2.0, 8.0, 32.0)  # a tie's width, in the reference's own: enough for ours to be that much less exact


class Flipped:
    """How far the reference is from itself with its ties flipped.

    For a few widths of a tie, since a trace has to say it without the other side's rounding.

    Args:
        layers: the reference's, in training mode.
        flip: width → (rounding, ties); None where `known` has them all.
        known: what was computed before.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        flip: Callable[[float], tuple[Rounding, int]] | None,
        known: dict[float, tuple[Rounding, int]] | None = None,
    ) -> None:
        own = SIGMAS * max((one.output_rounding for one in layers if one.output_rounding < CEILING), default=0.0)
        self.widths = tuple(known) if known else tuple(level * own for level in _LEVELS)
        self.known = dict(known or {})
        self.flip = flip

    def __call__(self, width: float) -> tuple[Rounding, int]:
        """Rounding and ties for the least width that is enough; else for the largest."""
        enough = next((own for own in self.widths if own >= width), self.widths[-1])
        if enough not in self.known:
            assert self.flip is not None
            self.known[enough] = self.flip(enough)
        return self.known[enough]

    def all_widths(self) -> dict[float, tuple[Rounding, int]]:
        """What a trace keeps."""
        return {width: self(width) for width in self.widths}


@dataclasses.dataclass
class Recording:
    """One side of the ladder, whole: what a trace folder holds.

    Attributes:
        framework: "PyTorch 2.13.0", "MindSpore 2.10.0".
        task: what it was told to do.
        initial: all parameters and statistics as the net came.
        layers: every layer's executions on the first micro-batch with the weights that training starts from, in
            evaluation mode ("eval") and in training mode ("train").
        trace: what it computed.
        rounding: how far float32 is from float64, or half precision from it (`stages.rounding`); empty: not known.
        flipped: the same with undecided ReLU inputs on their other side, and how many there are; None: not known.
        tied: parameters that are one array, by name.
        trainable: the parameters that an update changes, by name.
        constants: arrays that need no counterpart: neither trained nor statistics.
        notes: what was changed to make the two comparable, a line each.
        environment: what it was recorded with (`environment`); empty: not known.
        random_eval: whether it gave another output each time in evaluation mode, before dropout was set to 0.
        random_train: what draws random numbers in training mode, with dropout set to 0 (`cut_random`); empty: nothing.
        drops: where it dropped before that (`drops_of`); None: not recorded.
    """

    framework: str
    task: Task
    initial: Arrays
    layers: dict[str, list[Layer]]
    trace: Trace
    rounding: Rounding = dataclasses.field(default_factory=dict)
    flipped: Flipped | None = None
    tied: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    trainable: list[str] = dataclasses.field(default_factory=list)
    constants: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    random_eval: bool = False
    random_train: str = ""
    drops: list[Drop] | None = None


_STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


def parameter_roles(parameters: Iterable[tuple[str, Any]], untrained: Iterable[str]) -> dict[str, Any]:
    """`tied`, `trainable` and `constants` of a `Recording`, of either framework.

    Args:
        parameters: every name of every parameter, those of shared ones too.
        untrained: names of what no update changes: statistics, position tables, masks, counters, frozen weights.
    """
    names: dict[int, list[str]] = {}
    parameters = list(parameters)
    for name, parameter in parameters:
        names.setdefault(id(parameter), []).append(name)
    return {
        "tied": [tuple(group) for group in names.values() if len(group) > 1],
        "trainable": [name for name, parameter in parameters if parameter.requires_grad],
        "constants": [name for name in untrained if name.rpartition(".")[2] not in _STATISTICS],
    }


def make_recording(
    framework: str, task: Task, seen: Callable[[np.ndarray], np.ndarray], dropped: Sequence[Any], **recorded: Any
) -> Recording:
    """What both sides' recorders end with.

    Args:
        framework, task, recorded: fields of a `Recording`.
        seen: an array as the net gets it.
        dropped: what was set to 0 in the net (`without_dropout`).
    """
    side = "the reference" if framework.startswith("PyTorch") else "the net"
    words = [f"{name}: {attribute}={share:g}" for name, attribute, share in dropped]
    return Recording(
        framework,
        dataclasses.replace(task, batches=[map_tree(seen, tuple(batch)) for batch in task.batches]),
        notes=[
            *([f"dropout is 0 in {side}: {few(words)}"] if words else ()),
            *([f"dropout is 0 on both sides; the recipe has {few(task.dropped)}"] if task.dropped else ()),
        ],
        **recorded,
    )


def what_failed(side: str, inputs: Tree, error: Exception, fix: str) -> ValueError:
    """The error of a net that fails on its inputs."""
    return ValueError(f"{side}: it fails on {describe(inputs)} ({type(error).__name__}: {first_line(error)}); {fix}")


def not_one_number(side: str, value: Any) -> ValueError:
    """The error of a loss that is no scalar."""
    what = f"shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
    return ValueError(f"loss of {side}: it returns {what}, not one number; return the mean over the batch")
