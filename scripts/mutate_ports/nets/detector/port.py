"""A detector with frozen BatchNorm, anchors and several outputs."""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform


def convolution(inside, width, size, stride=1, padding=0, bias=True):
    bound = 1 / math.sqrt(inside * size * size)
    return nn.Conv2d(
        inside,
        width,
        size,
        stride,
        pad_mode="pad",
        padding=padding,
        has_bias=bias,
        weight_init=HeUniform(math.sqrt(5)),
        bias_init=Uniform(bound),
    )


class FrozenBatchNorm(nn.Cell):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = Parameter(Tensor(np.ones(width, np.float32)), requires_grad=False)
        self.bias = Parameter(Tensor(np.zeros(width, np.float32)), requires_grad=False)
        self.mean = Parameter(Tensor(np.zeros(width, np.float32)), requires_grad=False)
        self.variance = Parameter(Tensor(np.ones(width, np.float32)), requires_grad=False)

    def construct(self, x):
        scale = self.weight * ops.rsqrt(self.variance + self.eps)
        shift = self.bias - self.mean * scale
        return x * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


class Net(nn.Cell):
    def __init__(self, kinds=4):
        super().__init__()
        self.kinds = kinds
        self.conv1, self.bn1 = convolution(3, 8, 3, 2, 1, bias=False), FrozenBatchNorm(8)
        self.conv2, self.bn2 = convolution(8, 16, 3, 2, 1, bias=False), FrozenBatchNorm(16)
        self.tower = convolution(16, 16, 3, 1, 1)
        self.scores, self.boxes = convolution(16, kinds, 3, 1, 1), convolution(16, 4, 3, 1, 1)
        self.scale = Parameter(Tensor(1.0))
        place = np.arange(4) * 4 + 2.0
        y, x = np.meshgrid(place, place, indexing="ij")
        centres = np.stack([x, y], -1).reshape(-1, 2)
        self.anchors = Parameter(Tensor(centres.astype(np.float32)), requires_grad=False)

    def construct(self, images):
        x = ops.relu(self.bn1(self.conv1(images)))
        x = ops.relu(self.bn2(self.conv2(x)))
        shared = ops.relu(self.tower(x))
        n = images.shape[0]
        scores = self.scores(shared).reshape(n, self.kinds, -1).swapaxes(1, 2)
        sides = ops.softplus(self.boxes(shared) * self.scale).reshape(n, 4, -1).swapaxes(1, 2)
        first = self.anchors - sides[:, :, :2]
        corners = ops.cat([first, self.anchors + sides[:, :, 2:]], -1)
        if not self.training:
            scores, corners = ops.sigmoid(scores), corners.clamp(0.0, 16.0)
        return scores, corners


def loss(outputs, labels):
    scores, boxes = outputs
    kinds, wanted = labels["kinds"], labels["boxes"]
    positive = (kinds > 0).float()
    true = nn.OneHot(-1, 4)(kinds)
    ones = ops.ones_like(scores)
    of_kind = ops.binary_cross_entropy_with_logits(scores, true, ones, ones, reduction="none")
    of_box = ops.smooth_l1_loss(boxes, wanted, 1.0, "none").sum(-1)
    return of_kind.mean() + 0.1 * (of_box * positive).sum() / positive.sum()


def build():
    return Net()
