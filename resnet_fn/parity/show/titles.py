"""The words of stages and arrays: the only place where an id becomes text."""

from collections.abc import Callable

from resnet_fn.parity.compare.isolated import words_of_case
from resnet_fn.parity.compare.optimizer_settings import UPDATED
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.stages import EVERY_LATER, FIRST, ArrayId, StageId

_STAGES: dict[str, Callable[[StageId], str]] = {
    stages.EVAL_FORWARD.name: lambda stage: f"{stage.mode} forward",
    stages.EVAL_LAYERS.name: lambda stage: f"{stage.mode} layers",
    stages.CHANGE.name: lambda stage: "change by update 1",
    stages.STATISTICS.name: lambda stage: "BatchNorm statistics after update 1",
    stages.LAST.name: lambda stage: f"weights after update {stage.update}",
    stages.CHANGED_BUFFERS.name: lambda stage: "eval forward after the updates",
    stages.AVERAGE.name: lambda stage: "averaged weights after the last update",
}


def title_of_stage(stage: StageId | Stage) -> str:
    """Return the title of a stage, for example "gradients, later batches"."""
    stage = stage.id if isinstance(stage, Stage) else stage
    title = _STAGES[stage.name](stage) if stage.name in _STAGES else stage.name
    title += ", later batches" if stage.batch == EVERY_LATER else ""
    return title + (", with dropout" if stage.masked else "")


def title_of(array: ArrayId) -> str:
    """Return the name of an array, for example "conv.weight of rank 1"."""
    title = words_of_case(array) if array.samples else array.name
    if array.setting == UPDATED:
        title = f"whether {title} is updated"
    elif array.setting:
        title = f"{array.setting} of {title}"
    if array.update:
        title += f"{' of ' * bool(title)}update {array.update}"
    title += f" rows {array.rows[0]}:{array.rows[1]}" if array.rows else ""
    title += f" row {array.row}" if array.row is not None else ""
    if array.moment:
        title += {"orthogonal": ":", "each build": " in"}.get(array.moment, "") + f" {array.moment}"
    title += f", update {array.alone}" if array.alone else ""
    title += f" of batch {array.batch}" if array.batch != FIRST else ""
    return title + (f" of rank {array.worker}" if array.worker is not None else "")


def doubt_of(stage: Stage) -> str:
    """Return why a stage is undecided, or an empty string."""
    unclear = stage.unclear
    return f"{title_of(unclear.id)}: {unclear.doubt}" if unclear else stage.undecided
