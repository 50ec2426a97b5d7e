"""A small U-Net that predicts noise, with the schedule of DDPM."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, inside, width, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, inside), nn.Conv2d(inside, width, 3, padding=1)
        self.time = nn.Linear(time, 2 * width)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.skip = nn.Conv2d(inside, width, 1) if inside != width else nn.Identity()

    def forward(self, x, time):
        out = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        out = self.norm2(out) * (1 + scale) + shift
        return self.conv2(self.drop(F.silu(out))) + self.skip(x)


class Net(nn.Module):
    def __init__(self, steps=50, time=16):
        super().__init__()
        self.width = time
        kept = torch.cumprod(1 - torch.linspace(1e-3, 0.1, steps, dtype=torch.float64), 0)
        self.register_buffer("signal", kept.sqrt().float())
        self.register_buffer("spread", (1 - kept).sqrt().float())
        self.time1, self.time2 = nn.Linear(time, time), nn.Linear(time, time)
        self.enter = nn.Conv2d(2, 8, 3, padding=1)
        self.down, self.small = Residual(8, 8, time), nn.Conv2d(8, 8, 3, 2, 1)
        self.middle = Residual(8, 16, time)
        self.up = Residual(24, 8, time)
        self.norm, self.leave = nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 3, padding=1)

    def embed(self, step):
        half = self.width // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half, device=step.device) / half)
        angles = step[:, None].to(self.signal.dtype) * rates.to(self.signal.dtype)
        return torch.cat([angles.cos(), angles.sin()], -1)

    def forward(self, images, noise, step):
        signal, spread = self.signal[step.long()], self.spread[step.long()]
        x = signal[:, None, None, None] * images + spread[:, None, None, None] * noise
        time = self.time2(F.silu(self.time1(self.embed(step))))
        x = self.enter(x)
        kept = self.down(x, time)
        x = self.middle(self.small(kept), time)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.up(torch.cat([x, kept], 1), time)
        return self.leave(F.silu(self.norm(x)))


def loss(outputs, labels):
    return F.mse_loss(outputs, labels)


def build():
    return Net()
