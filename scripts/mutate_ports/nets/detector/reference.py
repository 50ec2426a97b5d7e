"""A detector with frozen BatchNorm, anchors and several outputs."""

import torch
from torch import nn
from torch.nn import functional as F


class FrozenBatchNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x):
        scale = self.weight * (self.variance + self.eps).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class Net(nn.Module):
    def __init__(self, kinds=4):
        super().__init__()
        self.kinds = kinds
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False), FrozenBatchNorm(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, 2, 1, bias=False), FrozenBatchNorm(16)
        self.tower = nn.Conv2d(16, 16, 3, 1, 1)
        self.scores, self.boxes = nn.Conv2d(16, kinds, 3, 1, 1), nn.Conv2d(16, 4, 3, 1, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        place = torch.arange(4) * 4 + 2.0
        y, x = torch.meshgrid(place, place, indexing="ij")
        centres = torch.stack([x, y], -1).reshape(-1, 2)
        self.register_buffer("anchors", centres)

    def forward(self, images):
        x = torch.relu(self.bn1(self.conv1(images)))
        x = torch.relu(self.bn2(self.conv2(x)))
        shared = torch.relu(self.tower(x))
        scores = self.scores(shared).flatten(2).transpose(1, 2)
        sides = F.softplus(self.boxes(shared) * self.scale).flatten(2).transpose(1, 2)
        corners = torch.cat([self.anchors - sides[..., :2], self.anchors + sides[..., 2:]], -1)
        if not self.training:
            scores, corners = torch.sigmoid(scores), corners.clamp(0.0, 16.0)
        return scores, corners


def loss(outputs, labels):
    scores, boxes = outputs
    kinds, wanted = labels["kinds"].long(), labels["boxes"]
    positive = (kinds > 0).to(scores.dtype)
    of_kind = F.binary_cross_entropy_with_logits(
        scores, F.one_hot(kinds, 4).to(scores.dtype), reduction="none"
    )
    of_box = F.smooth_l1_loss(boxes, wanted, reduction="none", beta=1.0).sum(-1)
    return of_kind.mean() + 0.1 * (of_box * positive).sum() / positive.sum()


def build():
    return Net()
