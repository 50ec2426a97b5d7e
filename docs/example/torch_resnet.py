"""The first layers of torchvision's ResNet-18, and its last: the original in README's first example."""

import torch
from torch import nn


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        """Float32 [n, channels, h, w] → the same shape."""
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + x)


class Net(nn.Module):
    """Stem, one block, classifier."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(64))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        """Images, float32 [n, 3, h, w] → logits [n, 10]."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer1(x).mean((2, 3)))
