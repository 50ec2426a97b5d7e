"""The same layers as MindCV 0.3.0 has them in mindcv/models/resnet.py: the port in README's first example."""

from mindspore import nn, ops


class Block(nn.Cell):
    """A residual block."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def construct(self, x):
        """Float32 [n, channels, h, w] → the same shape."""
        out = ops.relu(self.bn1(self.conv1(x)))
        return ops.relu(self.bn2(self.conv2(out)) + x)


class Net(nn.Cell):
    """Stem, one block, classifier."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, pad_mode="pad", padding=3)
        self.bn1 = nn.BatchNorm2d(64)
        self.max_pool = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")  # line 201 there
        self.layer1 = nn.SequentialCell(Block(64))
        self.classifier = nn.Dense(64, 10)

    def construct(self, x):
        """Images, float32 [n, 3, h, w] → logits [n, 10]."""
        x = self.max_pool(ops.relu(self.bn1(self.conv1(x))))
        return self.classifier(self.layer1(x).mean((2, 3)))
