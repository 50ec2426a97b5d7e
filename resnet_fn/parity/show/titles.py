"""The titles of stages and arrays.

Messages and hints that a rule makes have words of their own: `isolated.words_of_case`, which is
also used for titles, and functions in compare/outputs.py and compare/initial.py.
"""

from resnet_fn.parity.compare.isolated import words_of_case
from resnet_fn.parity.compare.optimizer_settings import UPDATED
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.stages import EVERY_LATER, FIRST, ArrayId, StageId

_STAGES = {
    stages.CHANGE.name: "change by update 1",
    stages.STATISTICS.name: "BatchNorm statistics after update 1",
    stages.CHANGED_BUFFERS.name: "eval forward after the updates",
    stages.AVERAGE.name: "averaged weights after the last update",
}

_OF_MODE = (stages.EVAL_FORWARD.name, stages.EVAL_LAYERS.name)

_MOMENTS = {"orthogonal": ": orthogonal", "each build": " in each build", "clone": ": a copy"}


def title_of_stage(stage: StageId | Stage) -> str:
    """Return the title of a stage, for example "gradients, later batches"."""
    if isinstance(stage, Stage):
        return title_of_stage(stage.id)
    title = _STAGES.get(stage.name, stage.name)
    if stage.name in _OF_MODE:
        title = f"{stage.mode} {stage.name}"
    if stage.update:
        title = f"weights after update {stage.update}"
    if stage.batch == EVERY_LATER:
        title += ", later batches"
    if stage.masked:
        title += ", with dropout"
    if stage.drawn:
        title += ", constants drawn"
    return title


def title_of(array: ArrayId) -> str:
    """Return the name of an array, for example "conv.weight of rank 1"."""
    title = array.name
    if array.samples:
        title = words_of_case(array)
    if array.setting == UPDATED:
        title = f"whether {title} is updated"
    elif array.setting:
        title = f"{array.setting} of {title}"
    if array.change:
        title = f"change of {title}"
    if array.update and title:
        title += f" of update {array.update}"
    elif array.update:
        title = f"update {array.update}"
    title += array.part
    if array.moment:
        title += _MOMENTS.get(array.moment, f" {array.moment}")
    if array.alone:
        title += f", update {array.alone}"
    if array.batch != FIRST:
        title += f" of batch {array.batch}"
    if array.worker is not None:
        title += f" of rank {array.worker}"
    return title


def doubt_of(stage: Stage) -> str:
    """Return why a stage is undecided, or an empty string."""
    undecided = stage.first_undecided
    return f"{title_of(undecided.id)}: {undecided.doubt}" if undecided else stage.reason
