"""All stages of the comparison, in the order of a training step.

A rule's class has the stage's id, what it compares, and by which tolerance. This table only names
the classes, so it imports all of them: nothing else is in this file.
"""

from resnet_fn.parity.compare.changes import (
    ChangeByAllUpdates,
    ChangeByFirstUpdate,
    ChangeOfAverage,
    StatisticsByFirstUpdate,
)
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
from resnet_fn.parity.compare.parameters import Clipped, Gradients, Weights
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.trained import Trained
from resnet_fn.parity.compare.untrained import Untrained
from resnet_fn.parity.compare.worker_sum import SumOfGradients
from resnet_fn.parity.trace.stages import EVAL_LAYERS, MASKED_LAYERS, TRAIN_LAYERS

# The rules that more rows use: on later batches, with dropout masks, with random numbers for
# constant arrays, and of the layers of the same forward pass.
_eval_forward, _train_forward, _loss, _gradients = EvalForward(), NetOutputs(), Loss(), Gradients()
_change, _statistics = ChangeByFirstUpdate(), StatisticsByFirstUpdate()
_masked_forward = with_masks(_train_forward)

RULES: tuple[Rule, ...] = (
    Inputs(),
    Initialisation(),
    Untrained(),
    Weights(),
    _eval_forward,
    LayerOutputs(EVAL_LAYERS, trains=False, mode="eval", of_net=_eval_forward),
    Dropout(),
    _train_forward,
    LayerOutputs(TRAIN_LAYERS, mode="train", of_net=_train_forward),
    _loss,
    LossAlone(),
    Trained(),
    SumOfGradients(),
    _gradients,
    *map(on_later_batches, (_eval_forward, _train_forward, _loss, _gradients)),
    GradientNorm(),
    Clipped(),
    Rates(),
    OptimizerSettings(),
    OptimizerAlone(),
    _change,
    _statistics,
    Losses(),
    ChangeByAllUpdates(),
    ChangedBuffers(),
    ChangeOfAverage(),
    _masked_forward,
    LayerOutputs(MASKED_LAYERS, mode="dropout", of_net=_masked_forward),
    *map(with_masks, (_loss, _gradients, _change, _statistics)),
    *map(with_constants, (_eval_forward, _train_forward)),
)
