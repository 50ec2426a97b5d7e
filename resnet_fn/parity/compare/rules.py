"""All stages of the comparison, in the order of a training step."""

from collections.abc import Mapping
from typing import Any

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

# Of both traces as they are: nothing was rounded, and there is one for all workers.
_GIVEN: dict[str, Any] = {"trains": False, "each_worker": False, "rounded": False}
_OF_LAYERS: dict[str, Any] = {"each_worker": False, "rounded": False}

_BACKWARD: dict[str, Any] = {
    "tolerance": allowed.GRADIENTS,
    "which": "backward",
    "made_of": name_map.GRADIENTS,
}

_eval_forward = EvalForward(
    stages.EVAL_FORWARD, trains=False, names_beyond=True, tolerance=allowed.OUTPUTS
)
_train_forward = NetOutputs(stages.TRAIN_FORWARD, names_beyond=True, tolerance=allowed.OUTPUTS)
_loss = Loss(stages.LOSS, names_beyond=True, tolerance=allowed.OUTPUTS)
_gradients = Gradients(stages.GRADIENTS, names_beyond=True, **_BACKWARD)
_change = Change(stages.CHANGE, tolerance=allowed.CHANGES, which="trained")
_statistics = Statistics(
    stages.STATISTICS, tolerance=allowed.CHANGES, which="rest", of_value=allowed.OUTPUTS
)
_several: dict[str, Any] = {"tolerance": allowed.CHANGES, "of_value": allowed.GRADIENTS}
_masked_forward = with_masks(_train_forward)

RULES: tuple[Rule, ...] = (
    Inputs(stages.INPUTS, **_GIVEN),
    Initialisation(stages.INITIALISATION, **_GIVEN),
    Untrained(stages.UNTRAINED, **_GIVEN),
    Parameters(stages.WEIGHTS, trains=False, tolerance=allowed.EQUAL),
    _eval_forward,
    LayerOutputs(stages.EVAL_LAYERS, **_GIVEN, mode="eval", of_net=_eval_forward),
    Dropout(stages.DROPOUT, **_GIVEN),
    _train_forward,
    LayerOutputs(stages.TRAIN_LAYERS, **_OF_LAYERS, mode="train", of_net=_train_forward),
    _loss,
    LossAlone(stages.LOSS_ALONE, rounded=False),
    Trained(stages.TRAINED, **_GIVEN),
    SumOfGradients(stages.SUM, each_worker=False, rounded=False),
    _gradients,
    *map(on_later_batches, (_eval_forward, _train_forward, _loss, _gradients)),
    GradientNorm(stages.NORM, tolerance=allowed.OUTPUTS),
    Gradients(stages.CLIPPED, **_BACKWARD),
    Rates(stages.RATE, trains=False, tolerance=allowed.SETTINGS),
    OptimizerSettings(stages.SETTINGS, trains=False, rounded=False),
    OptimizerAlone(stages.ALONE, trains=False, rounded=False),
    _change,
    _statistics,
    Losses(stages.TRAJECTORY, tolerance=allowed.CHANGES),
    LastWeights(stages.LAST, **_several),
    ChangedBuffers(stages.CHANGED_BUFFERS, tolerance=allowed.GRADIENTS),
    AveragedWeights(stages.AVERAGE, **_several),
    _masked_forward,
    LayerOutputs(stages.MASKED_LAYERS, **_OF_LAYERS, mode="dropout", of_net=_masked_forward),
    *map(with_masks, (_loss, _gradients, _change, _statistics)),
    *map(with_constants, (_eval_forward, _train_forward)),
)


def compare_stages(sides: Sides, known: Mapping[StageId, Stage] | None = None) -> list[Stage]:
    """Compare both sides stage by stage.

    `known` has the stages of an earlier call with another rounding. Those that do not depend on the
    rounding are not compared again.
    """
    workers = PortWorkers(sides.port)
    others = [sides.of_worker(worker) for worker in sides.port.workers[1:]]
    result = []
    for rule in RULES:
        if known is not None and not rule.rounded:
            result += [known[rule.id]] if rule.id in known else []
            continue
        stage = by_either_decision(rule.stage, sides)
        if stage is None:
            continue
        if sides.port.workers and rule.each_worker:
            stage = rule.with_workers(merged(stage, map(rule.stage, others)), workers)
        if rule.trains:
            stage = undecided_if_random(stage, sides.port, sides.reference)
        result.append(stage)
    return result
