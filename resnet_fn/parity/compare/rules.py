"""All stages of the comparison, in the order of a training step."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.constants import with_constants
from resnet_fn.parity.compare.dropout import Dropout
from resnet_fn.parity.compare.initial import Initialisation
from resnet_fn.parity.compare.inputs import Inputs
from resnet_fn.parity.compare.isolated import LossAlone, OptimizerAlone
from resnet_fn.parity.compare.layer_outputs import LayerOutputs
from resnet_fn.parity.compare.optimizer_settings import OptimizerSettings
from resnet_fn.parity.compare.other_runs import on_later_batches, with_masks
from resnet_fn.parity.compare.outputs import (
    ChangedBuffers,
    EvalForward,
    GradientNorm,
    Loss,
    Losses,
    NetOutputs,
    Rates,
)
from resnet_fn.parity.compare.parameters import Gradients, Parameters
from resnet_fn.parity.compare.randomness import undecided_if_random
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.ties import by_either_decision
from resnet_fn.parity.compare.trained import Trained
from resnet_fn.parity.compare.untrained import Untrained
from resnet_fn.parity.compare.weights import AveragedWeights, Change, LastWeights, Statistics
from resnet_fn.parity.compare.worker_sum import SumOfGradients
from resnet_fn.parity.compare.workers import PortWorkers, merged
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.stages import StageId

OfTraces = TypeVar("OfTraces", bound=Rule)


def _of_traces(rule: type[OfTraces], stage: StageId) -> OfTraces:
    """Return the rule of what the traces have beside runs.

    Nothing of it was rounded, and it is one for all workers.
    """
    return rule(stage, trains=False, each_worker=False, rounded=False)


def _layers(stage: StageId, mode: str, of_net: Rule, trains: bool = True) -> LayerOutputs:
    return LayerOutputs(
        stage, trains=trains, each_worker=False, rounded=False, mode=mode, of_net=of_net
    )


def _backward(stage: StageId, names_beyond: bool = False) -> Gradients:
    return Gradients(
        stage,
        names_beyond=names_beyond,
        tolerance=allowed.GRADIENTS,
        which="backward",
        made_of=name_map.GRADIENTS,
    )


# The rules that more rows use: on later batches, with dropout masks, with random numbers for
# constant arrays, and of the layers of the same forward pass.
_eval_forward = EvalForward(
    stages.EVAL_FORWARD, trains=False, names_beyond=True, tolerance=allowed.OUTPUTS
)
_train_forward = NetOutputs(stages.TRAIN_FORWARD, names_beyond=True, tolerance=allowed.OUTPUTS)
_loss = Loss(stages.LOSS, names_beyond=True, tolerance=allowed.OUTPUTS)
_gradients = _backward(stages.GRADIENTS, names_beyond=True)
_change = Change(stages.CHANGE, tolerance=allowed.CHANGES, which="trained")
_statistics = Statistics(
    stages.STATISTICS, tolerance=allowed.CHANGES, which="rest", of_value=allowed.OUTPUTS
)
_masked_forward = with_masks(_train_forward)

RULES: tuple[Rule, ...] = (
    _of_traces(Inputs, stages.INPUTS),
    _of_traces(Initialisation, stages.INITIALISATION),
    _of_traces(Untrained, stages.UNTRAINED),
    Parameters(stages.WEIGHTS, trains=False, tolerance=allowed.EQUAL),
    _eval_forward,
    _layers(stages.EVAL_LAYERS, "eval", _eval_forward, trains=False),
    _of_traces(Dropout, stages.DROPOUT),
    _train_forward,
    _layers(stages.TRAIN_LAYERS, "train", _train_forward),
    _loss,
    LossAlone(stages.LOSS_ALONE, rounded=False),
    _of_traces(Trained, stages.TRAINED),
    SumOfGradients(stages.SUM, each_worker=False, rounded=False),
    _gradients,
    *map(on_later_batches, (_eval_forward, _train_forward, _loss, _gradients)),
    GradientNorm(stages.NORM, tolerance=allowed.OUTPUTS),
    _backward(stages.CLIPPED),
    Rates(stages.RATE, trains=False, tolerance=allowed.SETTINGS),
    OptimizerSettings(stages.SETTINGS, trains=False, rounded=False),
    OptimizerAlone(stages.ALONE, trains=False, rounded=False),
    _change,
    _statistics,
    Losses(stages.TRAJECTORY, tolerance=allowed.CHANGES),
    LastWeights(stages.LAST, tolerance=allowed.CHANGES, of_value=allowed.GRADIENTS),
    ChangedBuffers(stages.CHANGED_BUFFERS, tolerance=allowed.GRADIENTS),
    AveragedWeights(stages.AVERAGE, tolerance=allowed.CHANGES, of_value=allowed.GRADIENTS),
    _masked_forward,
    _layers(stages.MASKED_LAYERS, "dropout", _masked_forward),
    *map(with_masks, (_loss, _gradients, _change, _statistics)),
    *map(with_constants, (_eval_forward, _train_forward)),
)


def compare_stages(sides: Sides, unchanged: Mapping[StageId, Stage] | None = None) -> list[Stage]:
    """Compare both sides stage by stage.

    `unchanged` has the stages of an earlier call with another rounding. Those that do not depend on
    the rounding are not compared again.
    """
    workers = PortWorkers(sides.port)
    others = [sides.of_worker(worker) for worker in sides.port.workers[1:]]
    result = []
    for rule in RULES:
        if unchanged is not None and not rule.rounded:
            result += [unchanged[rule.id]] if rule.id in unchanged else []
        elif stage := _one(rule, sides, others, workers):
            result.append(stage)
    return result


def _one(rule: Rule, sides: Sides, others: Sequence[Sides], workers: PortWorkers) -> Stage | None:
    """Return the stage of a rule. `others` are the sides of the port's workers after the first."""
    stage = by_either_decision(rule.stage, sides)
    if stage is None:
        return None
    if sides.port.workers and rule.each_worker:
        stage = rule.with_workers(merged(stage, map(rule.stage, others)), workers)
    if rule.trains:
        stage = undecided_if_random(stage, sides.port, sides.reference)
    return stage
