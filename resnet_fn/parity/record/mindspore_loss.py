"""The loss of a MindSpore net: the plan's, and the value of any."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Tensor

from resnet_fn.parity.record.common import check_scalar, loss_of_logits, mean_size
from resnet_fn.parity.trace.plan import MEAN_SIZE, LossPlan
from resnet_fn.parity.trace.tree import Tree, map_tree
from resnet_fn.runtime import process
from resnet_fn.update.loss import make_loss

Loss = Callable[[Any, Any], Tensor]


def loss_of(plan: LossPlan, outputs: Any) -> Loss:
    """Return the plan's loss as a function of (outputs, labels). `outputs` is an example."""
    if plan.name == MEAN_SIZE:
        return mean_size(outputs)
    return loss_of_logits("the net", outputs, make_loss(plan.smoothing, plan.name, plan.over))


@process.ending_mixed_precision()
def value_of(loss: Loss, outputs: Any, labels: Tree) -> np.ndarray:
    """Return the loss of outputs, or raise ValueError if it is not one number."""
    value = loss(outputs, map_tree(Tensor, labels))
    check_scalar("the net", value, Tensor)
    return value.numpy()
