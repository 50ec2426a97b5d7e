"""A pre-norm transformer that classifies sentences."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)
        self.drop = nn.Dropout(p=0.1)

    def construct(self, x, mask):
        n, length, width = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = ops.matmul(q * self.scale, k.swapaxes(-1, -2))
        hidden = ops.logical_not(mask).expand_dims(1).expand_dims(1)
        scores = scores.masked_fill(hidden, -1e9)
        weights = self.drop(ops.softmax(scores, -1))
        mixed = ops.matmul(weights, v)
        return self.out(mixed.permute(0, 2, 1, 3).reshape(n, length, width))


class Layer(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm((width,), epsilon=1e-5), Attention(width, heads)
        self.norm2 = nn.LayerNorm((width,), epsilon=1e-5)
        self.wide, self.narrow = nn.Dense(width, 2 * width), nn.Dense(2 * width, width)
        self.drop = nn.Dropout(p=0.2)

    def construct(self, x, mask):
        x = x + self.drop(self.attention(self.norm1(x), mask))
        inside = ops.gelu(self.wide(self.norm2(x)), approximate="none")
        return x + self.drop(self.narrow(inside))


class Net(nn.Cell):
    def __init__(self, width=16, heads=2, longest=32):
        super().__init__()
        self.embed = nn.Embedding(20, width, padding_idx=0, embedding_table=Normal(1.0, 0.0))
        rates = np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width))
        places = np.arange(longest)[:, None] * rates
        table = np.stack([np.sin(places), np.cos(places)], -1).reshape(longest, width)
        self.positions = Parameter(Tensor(table.astype(np.float32)), requires_grad=False)
        self.token = Parameter(Tensor(np.zeros(width, np.float32)))
        self.layers = nn.CellList([Layer(width, heads) for _ in range(2)])
        self.norm = nn.LayerNorm((width,), epsilon=1e-6)
        self.head = nn.Dense(width, 3)

    def construct(self, ids, mask):
        x = self.embed(ids) * 4.0 + self.positions[: ids.shape[1]] + self.token
        for layer in self.layers:
            x = layer(x, mask)
        weights = mask.expand_dims(-1).float()
        x = (self.norm(x) * weights).sum(1) / weights.sum(1)
        return self.head(x)


def build():
    return Net()
