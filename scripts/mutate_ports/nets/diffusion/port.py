"""A small U-Net that predicts noise, with the schedule of DDPM."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform


def convolution(inside, width, size, stride=1, padding=0):
    bound = 1 / math.sqrt(inside * size * size)
    return nn.Conv2d(
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


class Residual(nn.Cell):
    def __init__(self, inside, width, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, inside), convolution(inside, width, 3, 1, 1)
        self.time = nn.Dense(time, 2 * width)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), convolution(width, width, 3, 1, 1)
        self.drop = nn.Dropout(p=0.1)
        self.skip = convolution(inside, width, 1) if inside != width else nn.Identity()

    def construct(self, x, time):
        out = self.conv1(ops.silu(self.norm1(x)))
        both = self.time(ops.silu(time)).expand_dims(-1).expand_dims(-1)
        scale, shift = ops.chunk(both, 2, 1)
        out = self.norm2(out) * (1 + scale) + shift
        return self.conv2(self.drop(ops.silu(out))) + self.skip(x)


class Net(nn.Cell):
    def __init__(self, steps=50, time=16):
        super().__init__()
        self.width = time
        kept = np.cumprod(1 - np.linspace(1e-3, 0.1, steps))
        signal, spread = np.sqrt(kept).astype(np.float32), np.sqrt(1 - kept).astype(np.float32)
        self.signal = Parameter(Tensor(signal), requires_grad=False)
        self.spread = Parameter(Tensor(spread), requires_grad=False)
        self.time1, self.time2 = nn.Dense(time, time), nn.Dense(time, time)
        self.enter = convolution(2, 8, 3, 1, 1)
        self.down, self.small = Residual(8, 8, time), convolution(8, 8, 3, 2, 1)
        self.middle = Residual(8, 16, time)
        self.up = Residual(24, 8, time)
        self.norm, self.leave = nn.GroupNorm(2, 8), convolution(8, 2, 3, 1, 1)
        half = time // 2
        rates = np.exp(-math.log(10000.0) * np.arange(half) / half)
        self.rates = Tensor(rates.astype(np.float32))

    def embed(self, step):
        angles = step.float().expand_dims(1) * self.rates
        return ops.cat([ops.cos(angles), ops.sin(angles)], -1)

    def construct(self, images, noise, step):
        signal = self.signal[step].reshape(-1, 1, 1, 1)
        spread = self.spread[step].reshape(-1, 1, 1, 1)
        x = signal * images + spread * noise
        time = self.time2(ops.silu(self.time1(self.embed(step))))
        x = self.enter(x)
        kept = self.down(x, time)
        x = self.middle(self.small(kept), time)
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        x = self.up(ops.cat([x, kept], 1), time)
        return self.leave(ops.silu(self.norm(x)))


def loss(outputs, labels):
    return ops.mse_loss(outputs, labels)


def build():
    return Net()
