"""Convolutions on graphs: normalised neighbours, a norm of the graph, pooling under a mask."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def constant(value, width):
    return Tensor(np.full(width, value, np.float32))


class Convolution(nn.Cell):
    def __init__(self, inside, width):
        super().__init__()
        self.near = nn.Dense(inside, width, has_bias=False)
        self.itself = nn.Dense(inside, width)
        self.eps = Parameter(constant(0.0, 1))

    def construct(self, x, edges):
        degree = edges.sum(-1).clamp(min=1.0)
        scale = degree.pow(-0.5)
        weights = scale.expand_dims(2) * edges * scale.expand_dims(1)
        return ops.matmul(weights, self.near(x)) + (1 + self.eps) * self.itself(x)


class GraphNorm(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.alpha = Parameter(constant(1.0, width))
        self.gain, self.shift = Parameter(constant(1.0, width)), Parameter(constant(0.0, width))

    def construct(self, x, mask):
        count = mask.sum(1, keepdims=True)
        mean = (x * mask).sum(1, keepdims=True) / count
        x = (x - self.alpha * mean) * mask
        variance = (x * x).sum(1, keepdims=True) / count
        return (self.gain * x / ops.sqrt(variance + 1e-5) + self.shift) * mask


class Net(nn.Cell):
    def __init__(self, width=8):
        super().__init__()
        self.conv1, self.norm1 = Convolution(6, width), GraphNorm(width)
        self.conv2, self.norm2 = Convolution(width, width), GraphNorm(width)
        self.act = nn.PReLU()
        self.drop = nn.Dropout(p=0.2)
        self.attention, self.head = nn.Dense(width, 1), nn.Dense(2 * width, 1)
        self.center = Parameter(constant(0.0, 1), requires_grad=False)
        self.scale = Parameter(constant(1.0, 1), requires_grad=False)

    def construct(self, features, edges, mask):
        kept = mask.expand_dims(-1).float()
        x = self.act(self.norm1(self.conv1(features, edges), kept))
        x = x + self.act(self.norm2(self.conv2(self.drop(x), edges), kept))
        scores = self.attention(x).masked_fill(kept == 0, -1e4)
        summed = (ops.softmax(scores, 1) * x).sum(1)
        highest = (x + (kept - 1) * 1e4).max(axis=1)
        return self.head(ops.cat([summed, highest], -1)) * self.scale + self.center


def loss(outputs, labels):
    return ops.huber_loss(outputs, labels, delta=1.0)


def build():
    return Net()
