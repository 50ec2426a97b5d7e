"""Mark the stages that cannot be compared because a net draws random numbers."""

from collections.abc import Mapping

from resnet_fn.parity.compare.dropout import dropout_stage
from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.stages import ALONE, EVAL_FORWARD, RATE, SETTINGS, TRAIN_FORWARD


def with_doubts(
    stages: list[Stage], ours: Trace, theirs: Trace, layers: Mapping[str, str]
) -> list[Stage]:
    """Add the dropout stage, and change the verdicts of stages in which a net draws random
    numbers.
    """
    names = [stage.name for stage in stages]
    evaluation, after = stages[names.index(EVAL_FORWARD)], names.index(TRAIN_FORWARD)
    # on purpose: with dropout set to 0 they may repeat
    both = ours.random_eval and theirs.random_eval
    if both and (ours.random_train or theirs.random_train):
        evaluation.undecided = (
            "both nets draw random numbers in evaluation mode too; switch that off to compare"
        )
    for recording, side in ((ours, "the net"), (theirs, "the reference")):
        if recording.random_eval and not both:
            words = (
                f"{side} gives another output each time it is called in evaluation mode: "
                "dropout is left on"
            )
            evaluation.failed, evaluation.hints = words, [*evaluation.hints, words]
        for stage in stages[after:] if recording.random_train else ():
            if stage.name not in (RATE, SETTINGS, ALONE) and stage.verdict != SKIPPED:
                place = f"in {side} {recording.random_train}"
                # only one side has some outputs, or its loss fails
                if stage.differences and not stage.hints:
                    stage.failed = ""
                stage.undecided = (
                    f"{place} draws random numbers in training; switch it off to compare"
                )
    dropout = dropout_stage(ours, theirs, layers)
    return [*stages[:after], *([dropout] if dropout.verdict != SKIPPED else ()), *stages[after:]]
