"""Two updates of every recipe, on tiny data in the real on-disk formats: with a small net, and
(slow) with its own.
"""

import dataclasses
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn import recipes
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.recipes import RECIPES
from resnet_fn.run.build import build_run
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    ("name", "own_net"),
    [
        *((name, False) for name in RECIPES if name != "digits"),
        # Each net with each stem once; others have the same ones.
        *(
            pytest.param(name, True, marks=[pytest.mark.slow, pytest.mark.release])
            for name in ("cifar10_resnet18", "imagenet_resnet50_v2", "imagenet_genet50_plus")
        ),
    ],
)
def test_every_recipe_makes_two_updates(name, own_net, tmp_path, folder, make_cifar):
    recipe = dataclasses.replace(RECIPES[name], batch_size=8, epochs=100, ema_every=1)
    if not recipe.model:  # its weights tell it
        recipe = dataclasses.replace(recipe, model="resnet18")
    if not own_net:
        recipe = dataclasses.replace(recipe, model="resnet8", stem="")
    if recipe.dataset == "imagefolder":
        size = 24 if "genet" in recipe.model else 32  # whose gather fits one size
        recipe = dataclasses.replace(recipe, image_size=24, eval_size=size, eval_resize=36)
        data_dir = folder
    else:
        make_cifar(tmp_path / "cifar", recipe.dataset, True, 8)
        data_dir = tmp_path / "cifar"
    options = RunOptions(
        data_dir=str(data_dir), mode="graph" if own_net else "pynative", progress=False
    )
    run = build_run(recipe, options, Workers(), RunFolder(Path()), StopRequest())
    before = [parameter.asnumpy().copy() for parameter in run.state.weights]
    losses = []
    for update in range(2):
        images, labels = run.feed.batch(update)
        assert images.shape == (8, 3, recipe.image_size, recipe.image_size)
        assert labels.dtype == (np.float32 if recipe.mixes else np.int32)
        rate = Tensor(run.schedule(update), mindspore.float32)
        losses.append(float(run.train_step(Tensor(images), Tensor(labels), rate).loss))
    run.feed.close()
    assert np.isfinite(losses).all()
    for parameter, old in zip(run.state.weights, before, strict=True):
        assert np.isfinite(parameter.asnumpy()).all()
        assert (parameter.asnumpy() != old).any(), parameter.name
    assert (run.state.average is not None) == (name == "imagenet_resnet50_v2")


def test_every_recipe_has_its_source_and_its_accuracy():
    for name in RECIPES:
        text = getattr(recipes, name).__doc__
        if name not in ("digits", "finetune"):
            assert " %" in text, name
            assert "http" in text or "arXiv" in text or "published" in text, name
        assert RECIPES[name].name == name
