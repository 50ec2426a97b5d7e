"""What both sides of the ladder record of themselves, under the MindSpore net's names, and the batches they see."""

import dataclasses
from collections.abc import Sequence

import numpy as np

Batch = tuple[np.ndarray, np.ndarray]
Arrays = dict[str, np.ndarray]

# Weights are compared once more after this many updates. Later, one ReLU whose input rounds to the other side of 0
# somewhere on the way has made them two different trainings.
LATER = 5


@dataclasses.dataclass
class Trace:
    """What one side computes in a few updates. Parameters go by the MindSpore net's names.

    Attributes:
        eval_logits: [n, classes] of the first batch, in evaluation mode, before any update.
        start, first, later: all parameters and statistics before the first update, after it, and after update LATER
            (after the last, if there are fewer).
        rates: the learning rate of each update.
        train_logits: [n / accumulate, classes] of each update's last micro-batch, in training mode, before it.
        losses: one for each update, before it.
        norms: global gradient norm before clipping, one for each update.
        gradients: of the first update, the mean over its micro-batches, before clipping.
        clipped: the same after clipping.
        momentum: momentum buffers after the first update; empty where the optimizer has none that we know.
    """

    eval_logits: np.ndarray
    start: Arrays
    rates: list[float]
    first: Arrays = dataclasses.field(default_factory=dict)
    later: Arrays = dataclasses.field(default_factory=dict)
    train_logits: list[np.ndarray] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)
    norms: list[float] = dataclasses.field(default_factory=list)
    gradients: Arrays = dataclasses.field(default_factory=dict)
    clipped: Arrays = dataclasses.field(default_factory=dict)
    momentum: Arrays = dataclasses.field(default_factory=dict)


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Random batches that can be learnt: each class has its own pattern, under as much noise.

    Labels without any relation to the images would leave the loss where it is, and a trajectory that goes nowhere
    proves little.

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


def check_batches(batches: Sequence[Batch], accumulate: int) -> None:
    """Refuse batches that would recompile the step or do not divide.

    Raises:
        ValueError: names the batch, its size and the fix.
    """
    if not batches:
        raise ValueError("batches: there are none; give one for each update")
    size = len(batches[0][0])
    for index, (images, labels) in enumerate(batches):
        if len(images) != size or len(labels) != size:
            raise ValueError(f"batches: batch {index} has {len(images)} images, {len(labels)} labels; give {size} each")
    if size % accumulate:
        raise ValueError(f"accumulate: {accumulate} does not divide the batch of {size}; give a divisor of {size}")
