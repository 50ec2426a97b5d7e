"""Train a net with a BatchNorm of its own, on any number of workers."""

import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn

import resnet_fn

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_custom_net import FromScratch


def main(words):
    """Train to OUT_DIR, the one word."""
    x = np.random.default_rng(0).normal(size=(32, 2, 4, 4)).astype(np.float32)
    pair = x, np.arange(32) % 2
    mindspore.set_seed(0)
    net = nn.SequentialCell(FromScratch(2), nn.Flatten(), nn.Dense(32, 2))
    resnet_fn.fit(net, pair, pair, epochs=1, batch_size=16, out_dir=words[0], progress=False)
