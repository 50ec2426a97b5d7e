"""The ids of stages of a training step, and of the arrays that are compared in them.

An id is data: nothing is read out of a text. `show/titles.py` has the words of each id.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

FIRST, EVERY_LATER = 1, 0  # of `StageId.batch`: the first batch; all further batches together


@dataclasses.dataclass(frozen=True)
class StageId:
    """One stage of the comparison, or one group of arrays whose rounding is measured."""

    name: str
    mode: str = ""  # "eval" or "train" for what runs forward; empty for all others
    batch: int = FIRST  # FIRST; 2, 3, … for one further batch; EVERY_LATER
    masked: bool = False  # whether the same dropout masks are used on both sides
    drawn: bool = False  # whether constant arrays have random numbers instead (`draw_constants`)
    update: int = 0  # the number of the update after which weights are compared, if it varies
    # of measured rounding: whether it is that of the large numbers of each array, which are
    # compared apart (`difference.errors_of_parts`)
    large: bool = False

    @property
    def of_first_batch(self) -> "StageId":
        """The id of the same arrays on the first batch as it is, without masks."""
        return dataclasses.replace(self, batch=FIRST, masked=False, drawn=False)

    @property
    def of_any_update(self) -> "StageId":
        """The id without the update after which weights are compared."""
        return dataclasses.replace(self, update=0)


Of = TypeVar("Of")


def marked(of_stages: Mapping[StageId, Of], **marks: Any) -> dict[StageId, Of]:
    """Return the same values for stages of other runs. `marks` are fields of `StageId`."""
    return {dataclasses.replace(stage, **marks): value for stage, value in of_stages.items()}


@dataclasses.dataclass(frozen=True)
class ArrayId:
    """One compared array or number."""

    name: str = ""  # of a parameter, an output, an input or a layer's execution
    update: int = 0  # the number of the update from which a number comes; 0: of no single update
    alone: int = 0  # the number of made-up updates by the optimizer alone; 0: not alone
    batch: int = FIRST  # 2, 3, … for a further batch
    worker: int | None = None  # the rank; None if one worker stands for all, or is the only one
    setting: str = ""  # which setting of the optimizer for the parameter `name`
    samples: int = 0  # of a loss alone: samples in the batch, and …
    factor: int = 0  # … the factor of the outputs
    rows: tuple[int, int] | None = None  # of an initial array: (first, one after the last)
    row: int | None = None  # … or a single row of these
    # … "mean", "std", "kurtosis", "distribution", "orthogonal", "clone" or "each build"
    moment: str = ""
    change: bool = False  # whether the change of the array is meant, not its values

    @property
    def part(self) -> str:
        """Which part of an initial array is meant, as in " rows 8:16 row 3"; empty: all of it."""
        text = ""
        if self.rows:
            start, stop = self.rows
            text += f" rows {start}:{stop}"
        if self.row is not None:
            text += f" row {self.row}"
        return text


Key = str | int  # the name of a parameter or output, or the number of an update


def array_id(key: Key) -> ArrayId:
    """Return the id of a parameter or output by name, or of an update's number."""
    return ArrayId(key) if isinstance(key, str) else ArrayId(update=key)


INPUTS, INITIALISATION = StageId("inputs"), StageId("initialisation")

UNTRAINED, WEIGHTS = StageId("untrained arrays"), StageId("weights")

TRAINED = StageId("trained arrays")

EVAL_FORWARD, TRAIN_FORWARD = StageId("forward", "eval"), StageId("forward", "train")

EVAL_LAYERS, TRAIN_LAYERS = StageId("layers", "eval"), StageId("layers", "train")

MASKED_LAYERS = StageId("layers", "train", masked=True)

# by the mode of a layer; "dropout" is training mode with masks
STAGES_OF_LAYERS = {"eval": EVAL_LAYERS, "train": TRAIN_LAYERS, "dropout": MASKED_LAYERS}

DROPOUT, LOSS, LOSS_ALONE = StageId("dropout"), StageId("loss"), StageId("loss alone")

SUM, GRADIENTS = StageId("sum over the workers"), StageId("gradients")

NORM, CLIPPED, RATE = (
    StageId("gradient norm"),
    StageId("clipped gradients"),
    StageId("learning rate"),
)

SETTINGS, ALONE = StageId("optimizer settings"), StageId("optimizer alone")

CHANGE, STATISTICS = StageId("change"), StageId("statistics")

TRAJECTORY, LAST, AVERAGE = StageId("loss trajectory"), StageId("last weights"), StageId("average")

CHANGED_BUFFERS = StageId("changed buffers", "eval")

# Only their rounding is measured: norms and losses are computed from these arrays.
ALL_GRADIENTS, ALL_OUTPUTS = StageId("all gradients"), StageId("outputs of each update")
