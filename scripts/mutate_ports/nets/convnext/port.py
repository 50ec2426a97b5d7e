"""ConvNeXt: depthwise convolutions, LayerScale and stochastic depth."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform


class DropPath(nn.Cell):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob
        self.drop = nn.Dropout(p=drop_prob)

    def construct(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        mask = ops.ones((x.shape[0],) + (1,) * (x.ndim - 1), x.dtype)
        return x * self.drop(mask)


class Block(nn.Cell):
    def __init__(self, width, drop):
        super().__init__()
        self.dwconv = nn.Conv2d(
            width,
            width,
            5,
            pad_mode="pad",
            padding=2,
            group=width,
            has_bias=True,
            weight_init=HeUniform(math.sqrt(5)),
            bias_init=Uniform(1 / 5),
        )
        self.norm = nn.LayerNorm((width,), epsilon=1e-6)
        self.wide, self.narrow = nn.Dense(width, 2 * width), nn.Dense(2 * width, width)
        self.gamma = Parameter(Tensor(1e-6 * np.ones(width, np.float32)))
        self.drop_path = DropPath(drop)

    def construct(self, x):
        out = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        out = self.gamma * self.narrow(ops.gelu(self.wide(out), approximate="none"))
        return x + self.drop_path(out.permute(0, 3, 1, 2))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        bound = 1 / math.sqrt(3 * 4)
        self.stem = nn.Conv2d(
            3,
            8,
            2,
            2,
            pad_mode="valid",
            has_bias=True,
            weight_init=HeUniform(math.sqrt(5)),
            bias_init=Uniform(bound),
        )
        self.enter = nn.LayerNorm((8,), epsilon=1e-6)
        self.blocks = nn.CellList([Block(8, drop) for drop in (0.0, 0.1, 0.2)])
        self.norm = nn.LayerNorm((8,), epsilon=1e-6)
        self.head_drop, self.head = nn.Dropout(p=0.1), nn.Dense(8, 5)

    def construct(self, x):
        x = self.enter(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.head_drop(self.norm(x.mean((2, 3)))))


def build():
    return Net()
