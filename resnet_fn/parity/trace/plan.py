"""The updates that both sides make."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import changed
from resnet_fn.parity.trace.tree import Batch, named_leaves, split
from resnet_fn.update.schedule import make_schedule


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
