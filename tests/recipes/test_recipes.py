"""Two updates of every recipe with a small net, on tiny data in the real on-disk formats."""

from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn import recipes
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.models import MODELS
from resnet_fn.recipes import RECIPES
from resnet_fn.run.build import build_run
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "digits"])
def test_every_recipe_makes_two_updates(name, tmp_path, folder, make_cifar):
    recipe = RECIPES[name].changed(model="resnet8", stem="", batch_size=8, epochs=100)
    if recipe.ema:
        recipe = recipe.changed(ema_every=1)
    data_dir = folder
    if recipe.dataset == "imagefolder":
        recipe = recipe.changed(image_size=24, eval_size=32, eval_resize=36)
    else:
        data_dir = tmp_path / "cifar"
        make_cifar(data_dir, recipe.dataset, True, 8)
    # no other setting was dropped
    assert vars(recipe) == vars(RECIPES[name]) | recipe.chosen_values()
    options = RunOptions(data_dir=str(data_dir), mode="pynative", progress=False)
    run = build_run(recipe, options, Workers(), RunFolder(Path()), StopRequest())
    before = [parameter.asnumpy().copy() for parameter in run.state.weights]
    for update in range(2):
        images, labels = run.feed.batch(update)
        assert images.shape == (8, 3, recipe.image_size, recipe.image_size)
        assert labels.dtype == (np.float32 if recipe.mixes else np.int32)
        rate = Tensor(run.schedule(update), mindspore.float32)
        assert np.isfinite(float(run.train_step(Tensor(images), Tensor(labels), rate).loss))
    run.feed.close()
    for parameter, old in zip(run.state.weights, before, strict=True):
        assert np.isfinite(parameter.asnumpy()).all()
        assert (parameter.asnumpy() != old).any(), parameter.name
    assert (run.state.average is not None) == (name == "imagenet_resnet50_v2")


def test_every_recipe_has_its_source_and_its_accuracy():
    for name, recipe in RECIPES.items():
        text = getattr(recipes, name).__doc__
        assert recipe.model in ("", *MODELS)
        if name not in ("digits", "finetune"):
            assert " %" in text, name
            assert "http" in text or "arXiv" in text or "published" in text, name
        assert recipe.name == name
