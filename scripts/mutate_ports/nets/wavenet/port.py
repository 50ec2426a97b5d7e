"""Dilated causal convolutions with gates and skips, and weights that are normalised."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform


def convolution(inside, width, size=1, dilation=1):
    bound = 1 / math.sqrt(inside * size)
    return nn.Conv1d(
        inside,
        width,
        size,
        pad_mode="valid",
        dilation=dilation,
        has_bias=True,
        weight_init=HeUniform(math.sqrt(5)),
        bias_init=Uniform(bound),
    )


class DropChannels(nn.Cell):
    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p=p)

    def construct(self, x):
        if not self.training:
            return x
        return x * self.drop(ops.ones((x.shape[0], x.shape[1], 1), x.dtype))


class Gated(nn.Cell):
    def __init__(self, width, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = convolution(width, 2 * width, 2, dilation)
        self.skip, self.out = convolution(width, width), convolution(width, width)
        self.drop = DropChannels(0.2)

    def construct(self, x):
        zeros = ops.zeros((x.shape[0], x.shape[1], self.dilation), x.dtype)
        both = self.conv(ops.cat([zeros, x], 2))
        value, gate = ops.chunk(both, 2, 1)
        inside = self.drop(ops.tanh(value) * ops.sigmoid(gate))
        return (x + self.out(inside)) * 0.7071, self.skip(inside)


class Net(nn.Cell):
    def __init__(self, width=8):
        super().__init__()
        window = np.hanning(5)
        window = (window / window.sum()).reshape(1, 1, 5).astype(np.float32)
        self.window = Parameter(Tensor(window), requires_grad=False)
        self.enter = convolution(1, width)
        self.layers = nn.CellList([Gated(width, 2**i) for i in range(3)])
        direction = np.random.normal(0.0, 1.0, (width, width, 1)).astype(np.float32)
        self.direction = Parameter(Tensor(direction))
        self.length = Parameter(Tensor(np.ones((width, 1, 1), np.float32)))
        self.last = convolution(width, 6)

    def construct(self, x):
        ends = ops.zeros((x.shape[0], 1, 2), x.dtype)
        smooth = ops.conv1d(ops.cat([ends, x, ends], 2), self.window)
        x = self.enter(x - smooth)
        total = 0.0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        norm = ops.sqrt((self.direction**2).sum((1, 2), keepdims=True))
        x = ops.conv1d(ops.relu(total), self.length * self.direction / norm)
        return self.last(ops.relu(x))


def loss(outputs, labels):
    return ops.cross_entropy(outputs, labels)


def build():
    return Net()
