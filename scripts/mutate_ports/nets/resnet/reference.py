"""A residual net with squeeze-and-excitation and dropout."""

import torch
from torch import nn


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.reduce = nn.Conv2d(width, width // 4, 1)
        self.expand = nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        gate = x.mean((2, 3), keepdim=True)
        gate = torch.relu(self.reduce(gate))
        return x * torch.sigmoid(self.expand(gate))


class Block(nn.Module):
    def __init__(self, inside, width, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, momentum=0.2)
        self.se = Squeeze(width)
        self.short = None
        if stride != 1 or inside != width:
            self.short = nn.Conv2d(inside, width, 1, stride, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        if self.short is not None:
            x = self.short(x)
        return torch.relu(out + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.9, 0.8, 1.1]).reshape(1, 3, 1, 1))
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block1 = Block(8, 8)
        self.block2 = Block(8, 16, 2)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = (x - self.mean) / self.std
        x = self.pool(torch.relu(self.bn(self.stem(x))))
        x = self.block2(self.block1(x))
        x = self.dropout(x.mean((2, 3)))
        return self.fc(x)


def build():
    return Net()
