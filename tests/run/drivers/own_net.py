"""python own_net.py OUT_DIR [OTHER]: train a net of one's own on the digits' arrays, on any number
of workers.

With OTHER they train a second one for an epoch, to OTHER, which other workers than the first do not
see.
"""

import os
import sys

import mindspore
import numpy as np
from mindspore import nn, ops

import resnet_fn
from resnet_fn.runtime.workers import join


def loss(outputs, targets):
    return ops.cross_entropy(outputs, targets)


dataset = resnet_fn.open_dataset(resnet_fn.Recipe(image_size=8))
pairs = [
    (next(split.eval_images([np.arange(len(split))], dataset.input)), split.labels)
    for split in (dataset.train, dataset.test)
]


def train(out_dir, epochs):
    mindspore.set_seed(3)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 32), nn.ReLU(), nn.Dense(32, 10))
    settings = {"batch_size": 240, "learning_rate": 0.1, "progress": False}
    print(resnet_fn.fit(net, *pairs, loss, **settings, epochs=epochs, out_dir=out_dir).best)


train(sys.argv[1], 2)
if len(sys.argv) > 2:
    if not join().is_main:
        os.makedirs("elsewhere")
        os.chdir("elsewhere")
    train(sys.argv[2], 1)
