"""A fixture: the evaluation of a small net."""

from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.evaluate import Evaluation
from resnet_fn.evaluation.loaded_net import LoadedNet
from resnet_fn.evaluation.scoring import score
from resnet_fn.models import build_net
from resnet_fn.runtime.workers import Workers


@pytest.fixture(scope="session")
def evaluation(device):
    """An untrained net on the digits: every metric is there, and mistakes aplenty."""
    recipe = Recipe(model="resnet8", image_size=8)
    dataset = load_digits()
    net = build_net(recipe, dataset.input)
    state = {"update": 3, "class_balance": [], "feed": {"samples": 1437}}
    checkpoint = Checkpoint(Path("runs/a<b/checkpoints/step-00000003"), {}, {}, state)
    return Evaluation(
        LoadedNet(net, recipe, dataset.input, checkpoint),
        dataset,
        score(make_eval_step(net, with_logits=True), dataset, 128, all_classes=True),
        {"which": "last", "tta": "none", "ema": False, "image_size": 8},
        Workers(),
    )
