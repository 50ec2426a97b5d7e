"""Under msrun: gradients saturate on the last rank alone, as on a 910; each rank writes what it saw of each update."""

import json
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.runtime import process
from resnet_fn.update.exchange import with_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import make_state
from resnet_fn.update.step import StepPlan, make_train_step

workers = process.start()
scaler = DynamicLossScaler(2.0**20, ceiling=2.0**20)


def saturate(gradient):
    """Cut it as the 910's kernels cut what is too large: ±65504 instead of infinity."""
    return ops.clamp(gradient, -65504.0, 65504.0)


class SaturatingNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros((4, 4), np.float32)), name="weight")
        self.saturate = ops.InsertGradientOf(saturate)

    def construct(self, x):
        return ops.matmul(x, self.saturate(self.weight))


def all_finite(tensors):
    """The card's status register, faked: whether one of this rank's gradients reached the largest number."""
    cut = ops.zeros((), mindspore.float32)
    for tensor in tensors:
        cut = cut + (ops.abs(tensor * scaler.scale * workers.size) >= 65500.0).astype(mindspore.float32).sum()
    return cut == 0


mindspore.amp.all_finite = all_finite
net = SaturatingNet()
optimizer, workers = momentum_sgd([(net.weight, 0.0)], 0.9), with_all_reduce(workers)
state = make_state(net, optimizer, scaler)
step = make_train_step(net, make_loss(0.0), optimizer, state=state, workers=workers, plan=StepPlan(ascend=True))
images = Tensor(np.full((4, 4), float(workers.rank == workers.size - 1), np.float32))  # zeros have no gradient
seen = []
for _ in range(6):
    result = step(images, Tensor(np.zeros(4, np.int32)), 0.1)
    scale, _, in_a_row = result.scaler.asnumpy().tolist()
    weight = net.weight.asnumpy().astype(float).tolist()
    seen.append({"scale": scale, "skipped": bool(in_a_row), "who": result.report.not_finite.asnumpy().tolist()})
    seen[-1] |= {"norm": float(result.grad_norm.asnumpy()), "weight": weight}
Path(f"rank{workers.rank}.json").write_text(json.dumps(seen))
