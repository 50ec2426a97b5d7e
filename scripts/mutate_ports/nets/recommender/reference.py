"""Categories, numbers normalised by a moving mean, and products of pairs, as in DLRM."""

import torch
from torch import nn
from torch.nn import functional as F


class Normaliser(nn.Module):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.register_buffer("batches", torch.zeros(1))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.batches += 1
                share = torch.clamp(1 / self.batches, min=self.momentum)
                self.mean += share * (x.mean(0) - self.mean)
                self.variance += share * (x.var(0, unbiased=False) - self.variance)
        return (x - self.mean) / torch.sqrt(self.variance + 1e-5)


class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.normaliser = Normaliser(4)
        self.tables = nn.ModuleList([nn.Embedding(size, width) for size in (7, 5, 9)])
        self.bottom1, self.bottom2 = nn.Linear(4, 8), nn.Linear(8, width)
        rows, columns = torch.triu_indices(4, 4, 1)
        self.register_buffer("pairs", rows * 4 + columns)
        self.drop = nn.Dropout(0.25)
        self.top1, self.top2 = nn.Linear(width + 6, 8), nn.Linear(8, 1)

    def forward(self, numbers, kinds):
        x = self.normaliser(torch.log1p(numbers))
        x = torch.relu(self.bottom2(torch.relu(self.bottom1(x))))
        fields = [x] + [table(kinds[:, i]) for i, table in enumerate(self.tables)]
        fields = torch.stack(fields, 1)
        products = fields @ fields.transpose(1, 2)
        products = products.flatten(1)[:, self.pairs]
        x = torch.cat([x, products], 1)
        return self.top2(self.drop(torch.relu(self.top1(x))))


def loss(outputs, labels):
    return F.binary_cross_entropy_with_logits(outputs, labels)


def build():
    return Net()
