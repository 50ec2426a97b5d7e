"""Two views, a student with a predictor and a momentum teacher with a centre, as BYOL and DINO."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Encoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body, self.bn = nn.Dense(24, 16), nn.BatchNorm1d(16, momentum=0.9)
        self.out = nn.Dense(16, 8)

    def construct(self, x):
        return self.out(ops.relu(self.bn(self.body(x))))


class Net(nn.Cell):
    def __init__(self, momentum=0.99):
        super().__init__()
        self.momentum = momentum
        self.student, self.teacher = Encoder(), Encoder()
        self.predictor, self.probe = nn.Dense(8, 8), nn.Dense(8, 3)
        self.drop = nn.Dropout(p=0.1)
        self.center = Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)
        pairs = []
        for old, new in zip(
            self.teacher.trainable_params(), self.student.trainable_params(), strict=True
        ):
            old.set_data(new.value().copy())
            old.requires_grad = False
            pairs.append((old, new))
        self.pairs = tuple(pairs)

    def follow(self):
        for old, new in self.pairs:
            ops.assign(old, self.momentum * old + (1 - self.momentum) * new)

    def construct(self, first, second):
        if self.training:
            self.follow()
        features = self.student(first)
        predicted = self.predictor(self.drop(features))
        target = ops.stop_gradient(self.teacher(second))
        centred = target - self.center
        if self.training:
            ops.assign(self.center, 0.9 * self.center + 0.1 * target.mean(0))
        return predicted, ops.stop_gradient(centred), self.probe(ops.stop_gradient(features))


def loss(outputs, labels):
    predicted, target, logits = outputs
    similar = ops.cosine_similarity(predicted, target, dim=-1, eps=1e-6)
    return 2 - 2 * similar.mean() + 0.5 * ops.cross_entropy(logits, labels)


def build():
    return Net()
