"""Two views, a student with a predictor and a momentum teacher with a centre, as BYOL and DINO."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.bn, self.out = nn.Linear(24, 16), nn.BatchNorm1d(16), nn.Linear(16, 8)

    def forward(self, x):
        return self.out(torch.relu(self.bn(self.body(x))))


class Net(nn.Module):
    def __init__(self, momentum=0.99):
        super().__init__()
        self.momentum = momentum
        self.student = Encoder()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.predictor, self.probe = nn.Linear(8, 8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("center", torch.zeros(8))

    @torch.no_grad()
    def follow(self):
        for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            old.mul_(self.momentum).add_(new, alpha=1 - self.momentum)

    def forward(self, first, second):
        if self.training:
            self.follow()
        features = self.student(first)
        predicted = self.predictor(self.drop(features))
        with torch.no_grad():
            target = self.teacher(second)
            centred = target - self.center
            if self.training:
                self.center.mul_(0.9).add_(target.mean(0), alpha=0.1)
        return predicted, centred.detach(), self.probe(features.detach())


def loss(outputs, labels):
    predicted, target, logits = outputs
    similar = F.cosine_similarity(predicted, target, dim=-1, eps=1e-6)
    return 2 - 2 * similar.mean() + 0.5 * F.cross_entropy(logits, labels.long())


def build():
    return Net()
