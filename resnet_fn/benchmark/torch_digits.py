"""The digits recipe in PyTorch, with our data and schedule: SEED LOG. Evaluates at each epoch's end, as ours does."""

import dataclasses
import json
import sys
from typing import Any

import numpy as np

from resnet_fn.benchmark.sides import torch_step
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe as named_recipe
from resnet_fn.reference.nets import reference_net
from resnet_fn.runtime.extras import import_extra
from resnet_fn.update.schedule import make_schedule

torch = import_extra("torch", "benchmark time-to-accuracy")


def main(seed: int, log: str) -> None:
    """Train for the recipe's epochs and append each evaluation to `log` as JSON."""
    recipe = dataclasses.replace(named_recipe("digits"), seed=seed)
    digits = open_dataset(recipe)
    feed = make_feed(digits, recipe)
    schedule = make_schedule(recipe, feed.updates_per_epoch)
    torch.manual_seed(seed)
    net = reference_net(recipe.model, num_classes=10, in_channels=1)
    step = torch_step(net, recipe, net)
    for update in range(recipe.epochs * feed.updates_per_epoch):
        images, labels = feed.batch(update)
        net.train()
        step(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels), schedule(update))
        if (update + 1) % feed.updates_per_epoch == 0:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps({"event": "eval", "update": update + 1, "top1": evaluate(net, digits)}) + "\n")


def evaluate(net: Any, digits: DataSet) -> float:
    """Top-1 on the test digits."""
    net.eval()
    images, labels, _ = next(eval_batches(digits.test, digits.input, len(digits.test)))
    with torch.no_grad():
        return float((net(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
