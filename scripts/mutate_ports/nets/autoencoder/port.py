"""A variational autoencoder: the divergence's weight grows with the number of updates."""

import mindspore
from mindspore import Parameter, Tensor, nn, ops


class Net(nn.Cell):
    def __init__(self, code=4, warmup=3.0):
        super().__init__()
        self.warmup = warmup
        self.enter, self.norm = nn.Dense(20, 16), nn.LayerNorm((16,), epsilon=1e-5)
        self.mean, self.spread = nn.Dense(16, code), nn.Dense(16, code)
        self.inside, self.leave = nn.Dense(code, 16), nn.Dense(16, 20)
        self.updates = Parameter(Tensor(0.0, mindspore.float32), requires_grad=False)

    def construct(self, x, noise):
        hidden = ops.elu(self.norm(self.enter(x)))
        mean = self.mean(hidden)
        spread = self.spread(hidden).clamp(-6.0, 3.0)
        code = mean
        weight = ops.clamp(self.updates / self.warmup, max=1.0)
        if self.training:
            code = mean + ops.exp(0.5 * spread) * noise
            ops.assign(self.updates, self.updates + 1)
        logits = self.leave(ops.elu(self.inside(code)))
        return logits, mean, spread, weight


def loss(outputs, labels):
    logits, mean, spread, weight = outputs
    ones = ops.ones_like(logits)
    rebuilt = ops.binary_cross_entropy_with_logits(logits, labels, ones, ones, reduction="none")
    divergence = -0.5 * (1 + spread - mean**2 - ops.exp(spread)).sum(1).mean()
    return rebuilt.sum(1).mean() + weight * divergence


def build():
    return Net()
