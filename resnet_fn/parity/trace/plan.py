"""The updates that both sides make."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.parity.trace.stages import FIRST
from resnet_fn.parity.trace.tree import Batch, named_leaves, split

# The number of updates after which weights are compared. Later, the input of a ReLU may have
# rounded to the other side of 0, and the two trainings diverge.
LATER = 5


MEAN_SIZE = "mean size of the outputs"  # the loss if the reference has nothing to train


@dataclasses.dataclass(frozen=True)
class OptimizerPlan:
    """The optimizer of the updates. The learning rate is in `Plan.rates`."""

    name: str  # a key of `OPTIMIZERS`, such as "sgd"
    momentum: float  # β1 of Adam and the like
    weight_decay: float
    decay_all: bool  # whether biases and norms are decayed, too
    # All that one of the optimizers reads, such as beta2; see `settings_read_by`.
    settings: Mapping[str, float]
    custom: bool = False  # whether a function of the user's makes the optimizer instead

    @property
    def is_adaptive(self) -> bool:
        """Whether an update's size may be independent of the gradient's size, as in Adam."""
        return self.custom or OPTIMIZERS[self.name].adaptive


@dataclasses.dataclass(frozen=True)
class LossPlan:
    """The loss of the updates: the mean over a batch."""

    name: str  # "cross_entropy", "bce" or "focal"; MEAN_SIZE if nothing is trained
    smoothing: float  # of labels, from 0 to 1
    over: str  # smoothed over "all" classes, or over "others" than the label's
    custom: bool = False  # whether a function of the user's computes the loss instead


@dataclasses.dataclass(frozen=True)
class AveragePlan:
    """The moving average of the weights."""

    decay: float  # the weight of the old average
    every: int  # updates from one move to the next
    start: int  # updates before the first move; until then, the average is a copy


@dataclasses.dataclass(frozen=True)
class NetPlan:
    """A net of this package. A net of the user's ignores these fields, except `initialisation`."""

    model: str
    stem: str
    norm: str
    initialisation: str  # initial values are compared if it is "torchvision"
    zero_init_residual: bool
    classes: int = 0  # 0: not known


@dataclasses.dataclass(frozen=True)
class Plan:
    """The updates that both sides make.

    Raises ValueError if batches are wrong.
    """

    batches: Sequence[Batch]  # one (inputs, labels) for each update, all of one shape
    rates: list[float]  # the learning rate of each update
    optimizer: OptimizerPlan
    loss: LossPlan
    net: NetPlan
    clip_norm: float = 0.0  # the largest global norm of the gradients; 0: no clipping
    average: AveragePlan | None = None
    precision: str = "fp32"  # or "fp16": convolutions in float16, with loss scaling
    loss_scale: float = 1.0  # the first loss scale of "fp16"
    loss_scale_interval: int = 2000  # finite updates before the scale doubles
    dropout: Mapping[str, float] = field(default_factory=dict)  # left out, by setting
    accumulate: int = 1  # micro-batches of each update
    seed: int = 0  # the seed of random numbers that replace initial values

    def __post_init__(self) -> None:
        check_batches(self.batches, self.accumulate)

    @property
    def rounding_precision(self) -> str:
        """The precision in which the reference's rounding is measured."""
        return "float16" if self.precision == "fp16" else "float32"

    @property
    def first(self) -> Batch:
        """The first micro-batch of the first batch."""
        return self.first_of(FIRST)

    def first_of(self, batch: int) -> Batch:
        """Return the first micro-batch of a batch, which is counted from 1."""
        return split(tuple(self.batches[batch - FIRST]), self.accumulate)[0]


def check_batches(batches: Sequence[Batch], accumulate: int) -> None:
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
