"""A variational autoencoder: the divergence's weight grows with the number of updates."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, code=4, warmup=3.0):
        super().__init__()
        self.warmup = warmup
        self.enter, self.norm = nn.Linear(20, 16), nn.LayerNorm(16)
        self.mean, self.spread = nn.Linear(16, code), nn.Linear(16, code)
        self.inside, self.leave = nn.Linear(code, 16), nn.Linear(16, 20)
        self.register_buffer("updates", torch.zeros(()))

    def forward(self, x, noise):
        hidden = F.elu(self.norm(self.enter(x)))
        mean = self.mean(hidden)
        spread = self.spread(hidden).clamp(-6.0, 3.0)
        code = mean
        weight = torch.clamp(self.updates / self.warmup, max=1.0)
        if self.training:
            code = mean + torch.exp(0.5 * spread) * noise
            self.updates += 1
        logits = self.leave(F.elu(self.inside(code)))
        return logits, mean, spread, weight


def loss(outputs, labels):
    logits, mean, spread, weight = outputs
    rebuilt = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(1).mean()
    divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
    return rebuilt + weight * divergence


def build():
    return Net()
