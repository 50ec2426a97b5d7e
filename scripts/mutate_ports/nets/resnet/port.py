"""A residual net with squeeze-and-excitation and dropout."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform


def convolution(inside, width, size, stride=1, padding=0, bias=False):
    bound = 1 / math.sqrt(inside * size * size)
    return nn.Conv2d(
        inside,
        width,
        size,
        stride,
        pad_mode="pad",
        padding=padding,
        has_bias=bias,
        weight_init=HeUniform(math.sqrt(5)),
        bias_init=Uniform(bound),
    )


class Squeeze(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.reduce = convolution(width, width // 4, 1, bias=True)
        self.expand = convolution(width // 4, width, 1, bias=True)

    def construct(self, x):
        gate = x.mean((2, 3), keep_dims=True)
        gate = ops.relu(self.reduce(gate))
        return x * ops.sigmoid(self.expand(gate))


class Block(nn.Cell):
    def __init__(self, inside, width, stride=1):
        super().__init__()
        self.conv1 = convolution(inside, width, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(width, momentum=0.9)
        self.conv2 = convolution(width, width, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(width, momentum=0.8)
        self.se = Squeeze(width)
        self.short = None
        if stride != 1 or inside != width:
            self.short = convolution(inside, width, 1, stride)

    def construct(self, x):
        out = ops.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        if self.short is not None:
            x = self.short(x)
        return ops.relu(out + x)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        mean = np.array([0.1, 0.2, 0.3], np.float32).reshape(1, 3, 1, 1)
        std = np.array([0.9, 0.8, 1.1], np.float32).reshape(1, 3, 1, 1)
        self.mean = Parameter(Tensor(mean), requires_grad=False)
        self.std = Parameter(Tensor(std), requires_grad=False)
        self.stem = convolution(3, 8, 3, 1, 1)
        self.bn = nn.BatchNorm2d(8, momentum=0.9)
        self.pool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        self.block1 = Block(8, 8)
        self.block2 = Block(8, 16, 2)
        self.dropout = nn.Dropout(p=0.2)
        self.fc = nn.Dense(16, 4)

    def construct(self, x):
        x = (x - self.mean) / self.std
        x = self.pool(ops.relu(self.bn(self.stem(x))))
        x = self.block2(self.block1(x))
        x = self.dropout(x.mean((2, 3)))
        return self.fc(x)


def build():
    return Net()
