"""Vector quantisation whose codebook is a moving average, as in VQ-VAE-2 and Encodec."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform, initializer


class Codebook(nn.Cell):
    def __init__(self, codes=8, width=4, decay=0.9, eps=1e-5):
        super().__init__()
        self.codes, self.decay, self.eps = codes, decay, eps
        embed = np.random.normal(0.0, 1.0, (codes, width)).astype(np.float32)
        self.embed = Parameter(Tensor(embed), requires_grad=False)
        self.size = Parameter(Tensor(np.ones(codes, np.float32)), requires_grad=False)
        self.total = Parameter(Tensor(embed.copy()), requires_grad=False)

    def construct(self, x):
        flat = x.reshape(-1, x.shape[-1])
        apart = (flat**2).sum(1, keepdims=True)
        apart = apart - 2 * ops.matmul(flat, self.embed.T) + (self.embed**2).sum(1)
        index = apart.argmin(1)
        chosen = ops.stop_gradient(nn.OneHot(-1, self.codes)(index))
        quantised = ops.matmul(chosen, self.embed).reshape(x.shape)
        if self.training:
            data = ops.stop_gradient(flat)
            size = self.size * self.decay + chosen.sum(0) * (1 - self.decay)
            total = self.total * self.decay + ops.matmul(chosen.T, data) * (1 - self.decay)
            whole = size.sum()
            smooth = (size + self.eps) / (whole + self.codes * self.eps) * whole
            ops.assign(self.size, size)
            ops.assign(self.total, total)
            ops.assign(self.embed, total / smooth.expand_dims(1))
        commitment = ((ops.stop_gradient(quantised) - x) ** 2).mean()
        return x + ops.stop_gradient(quantised - x), commitment, index


def convolution(inside, width, size, stride, padding):
    bound = 1 / math.sqrt(inside * size)
    return nn.Conv1d(
        inside,
        width,
        size,
        stride,
        pad_mode="pad",
        padding=padding,
        has_bias=True,
        weight_init=HeUniform(math.sqrt(5)),
        bias_init=Uniform(bound),
    )


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.down = convolution(2, 8, 4, 2, 1)
        self.inside = convolution(8, 4, 3, 1, 1)
        self.codebook = Codebook()
        self.outside = convolution(4, 8, 3, 1, 1)
        self.up = nn.Conv1dTranspose(8, 2, 4, 2, pad_mode="pad", padding=1, has_bias=True)
        bound = 1 / math.sqrt(2 * 4)
        self.up.weight.set_data(initializer(Uniform(bound), self.up.weight.shape))
        self.up.bias.set_data(initializer(Uniform(bound), self.up.bias.shape))

    def construct(self, x):
        hidden = self.inside(ops.relu(self.down(x)))
        quantised, commitment, _ = self.codebook(hidden.swapaxes(1, 2))
        out = self.up(ops.relu(self.outside(quantised.swapaxes(1, 2))))
        return out, commitment


def loss(outputs, labels):
    out, commitment = outputs
    return ops.mse_loss(out, labels) + 0.25 * commitment


def build():
    return Net()
