"""What one side of the ladder computes in a few updates, under its own names, and what it was told to do."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.traces.batches import Arrays, Batch, check_batches
from resnet_fn.parity.traces.layer import Layer
from resnet_fn.update.schedule import make_schedule

# What a recipe may say of its updates and the reference's side does not do: refused, not left out.
_NOT_COMPARED = (
    *("class_weights", "head_learning_rate", "layer_decay", "freeze", "train_only", "sync_batchnorm"),
    "multi_label",
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
        return compressed_rates(self.recipe, len(self.batches))

    @property
    def updates_per_epoch(self) -> float:
        """What durations in epochs are multiplied by: the recipe's epochs are compressed into the updates."""
        return len(self.batches) / self.recipe.epochs


def compressed_rates(recipe: Recipe, updates: int) -> list[float]:
    """The recipe's whole schedule, warm-up to end, compressed into a few updates."""
    schedule = make_schedule(recipe, updates / recipe.epochs)
    return [schedule(update) for update in range(updates)]


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
    average: Arrays = dataclasses.field(default_factory=dict)


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
        flipped: the same with undecided ReLU inputs on their other side (`relu_ties`), and how many there are, by how
            far from 0 they are taken to lie.
        tied: parameters that are one array, by name.
        trainable: the parameters that an update changes, by name.
        constants: arrays that need no counterpart: neither trained nor statistics.
        notes: what was changed to make the two comparable, a line each.
        random_eval: whether it gave another output each time in evaluation mode, before dropout was set to 0.
    """

    framework: str
    task: Task
    initial: Arrays
    layers: dict[str, list[Layer]]
    trace: Trace
    rounding: Any = dataclasses.field(default_factory=dict)
    flipped: Any = None
    tied: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    trainable: list[str] = dataclasses.field(default_factory=list)
    constants: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    random_eval: bool = False
