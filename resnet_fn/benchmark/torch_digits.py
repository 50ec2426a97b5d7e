"""The digits recipe in PyTorch, with our data and schedule: SEED LOG. Evaluates at each epoch's end, as ours does."""

import dataclasses
import json
import sys

import numpy as np

from resnet_fn.data.dataset import DataSet
from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.parity.reference import reference_net
from resnet_fn.recipes import recipe as named_recipe
from resnet_fn.update.schedule import make_schedule

try:
    import torch
    from torch.nn.functional import cross_entropy
except ImportError:
    raise ValueError("benchmark time-to-accuracy needs torch; pip install 'resnet_fn[torch]'") from None


def main(seed: int, log: str) -> None:
    """Train for the recipe's epochs and append each evaluation to `log` as JSON."""
    recipe = dataclasses.replace(named_recipe("digits"), seed=seed)
    digits = load_dataset(recipe)
    data = MemoryFeed(digits, recipe)
    schedule = make_schedule(recipe, data.updates_per_epoch)
    torch.manual_seed(seed)
    net = reference_net(recipe.model, num_classes=10, in_channels=1)
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, recipe.learning_rate, recipe.momentum, nesterov=recipe.nesterov)
    for update in range(recipe.epochs * data.updates_per_epoch):
        images, labels = data.batch(update)
        for group in optimizer.param_groups:
            group["lr"] = schedule(update)
        net.train()
        optimizer.zero_grad()
        logits = net(torch.from_numpy(np.ascontiguousarray(images)))
        loss = cross_entropy(logits, torch.from_numpy(labels).long(), label_smoothing=recipe.label_smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip_norm)
        optimizer.step()
        if (update + 1) % data.updates_per_epoch == 0:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps({"event": "eval", "update": update + 1, "top1": evaluate(net, digits)}) + "\n")


def evaluate(net: torch.nn.Module, digits: DataSet) -> float:
    """Top-1 on the test digits."""
    right = 0
    net.eval()
    with torch.no_grad():
        for images, labels, indices in eval_batches(digits.test, digits.input, 180):
            found = net(torch.from_numpy(images)).argmax(1).numpy()
            right += int((found == labels)[indices >= 0].sum())
    return right / len(digits.test)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
