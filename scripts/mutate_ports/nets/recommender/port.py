"""Categories, numbers normalised by a moving mean, and products of pairs, as in DLRM."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal


class Normaliser(nn.Cell):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.mean = Parameter(Tensor(np.zeros(width, np.float32)), requires_grad=False)
        self.variance = Parameter(Tensor(np.ones(width, np.float32)), requires_grad=False)
        self.batches = Parameter(Tensor(np.zeros(1, np.float32)), requires_grad=False)

    def construct(self, x):
        mean, variance = self.mean.value(), self.variance.value()
        if self.training:
            batches = self.batches + 1
            share = ops.clamp(1 / batches, min=self.momentum)
            centre = x.mean(0)
            mean = mean + share * (centre - mean)
            variance = variance + share * (((x - centre) ** 2).mean(0) - variance)
            ops.assign(self.batches, batches)
            ops.assign(self.mean, mean)
            ops.assign(self.variance, variance)
        return (x - mean) / ops.sqrt(variance + 1e-5)


class Net(nn.Cell):
    def __init__(self, width=6):
        super().__init__()
        self.normaliser = Normaliser(4)
        self.tables = nn.CellList(
            [nn.Embedding(size, width, embedding_table=Normal(1.0, 0.0)) for size in (7, 5, 9)]
        )
        self.bottom1, self.bottom2 = nn.Dense(4, 8), nn.Dense(8, width)
        rows, columns = np.triu_indices(4, 1)
        self.pairs = Tensor((rows * 4 + columns).astype(np.int32))
        self.drop = nn.Dropout(p=0.25)
        self.top1, self.top2 = nn.Dense(width + 6, 8), nn.Dense(8, 1)

    def construct(self, numbers, kinds):
        x = self.normaliser(ops.log1p(numbers))
        x = ops.relu(self.bottom2(ops.relu(self.bottom1(x))))
        fields = [x]
        for index, table in enumerate(self.tables):
            fields.append(table(kinds[:, index]))
        stacked = ops.stack(fields, 1)
        products = ops.matmul(stacked, stacked.swapaxes(1, 2))
        products = ops.gather(products.reshape(x.shape[0], -1), self.pairs, 1)
        x = ops.cat([x, products], 1)
        return self.top2(self.drop(ops.relu(self.top1(x))))


def loss(outputs, labels):
    weight = ops.ones_like(outputs)
    return ops.binary_cross_entropy_with_logits(outputs, labels, weight, weight)


def build():
    return Net()
