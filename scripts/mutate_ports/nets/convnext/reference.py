"""ConvNeXt: depthwise convolutions, LayerScale and stochastic depth."""

import torch
from torch import nn
from torch.nn import functional as F


class DropPath(nn.Module):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask / keep


class Block(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))
        self.drop_path = DropPath(drop)

    def forward(self, x):
        out = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        out = self.gamma * self.narrow(F.gelu(self.wide(out)))
        return x + self.drop_path(out.permute(0, 3, 1, 2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.enter = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8, eps=1e-6)
        self.blocks = nn.ModuleList([Block(8, drop) for drop in (0.0, 0.1, 0.2)])
        self.norm = nn.LayerNorm(8, eps=1e-6)
        self.head_drop, self.head = nn.Dropout(0.1), nn.Linear(8, 5)

    def forward(self, x):
        x = self.enter(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.head_drop(self.norm(x.mean((2, 3)))))


def build():
    return Net()
