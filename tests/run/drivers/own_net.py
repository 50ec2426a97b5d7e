"""Train a net of one's own on the digits' arrays, on any number of workers."""

import os

import mindspore
import numpy as np
from mindspore import nn, ops

import resnet_fn
from resnet_fn.runtime.workers import join


def loss(outputs, targets):
    return ops.cross_entropy(outputs, targets)


def train(out_dir, epochs):
    mindspore.set_seed(3)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 32), nn.ReLU(), nn.Dense(32, 10))
    dataset = resnet_fn.open_dataset(resnet_fn.Recipe(image_size=8))
    pairs = [
        (next(split.eval_images([np.arange(len(split))], dataset.input)), split.labels)
        for split in (dataset.train, dataset.test)
    ]
    settings = {"batch_size": 240, "learning_rate": 0.1, "progress": False}
    resnet_fn.fit(net, *pairs, loss, **settings, epochs=epochs, out_dir=out_dir)


def main(words):
    """Train to OUT_DIR, the first word.

    With OTHER, a second word, also a second net for an epoch, to OTHER, which other workers than
    the first do not see.
    """
    out_dir, *other = words
    train(out_dir, 2)
    for path in other:
        if not join().is_main:
            os.makedirs("unshared")
            os.chdir("unshared")
        train(path, 1)
