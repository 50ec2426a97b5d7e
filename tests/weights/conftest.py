"""Fixtures: arrays and files of small nets."""

from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.config.values import to_dict
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models import create_model
from resnet_fn.weights import names
from resnet_fn.weights.files import write_arrays


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip(
        "torch", reason="PyTorch writes files, and computes what nets should"
    )


@pytest.fixture(params=["safetensors", "ckpt", "pth"])
def ending(request):
    """The ending of each kind of file that is written."""
    if request.param == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    return request.param


@pytest.fixture(scope="session")
def arrays_of():
    """A net's parameters as arrays by name."""
    return lambda net: {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


@pytest.fixture(scope="session")
def save_run():
    """save_run(update, weights, training, model) saves a checkpoint in the run folder `run`."""
    images = InputSpec(
        name="images",
        classes=(),
        channels=3,
        image_size=8,
        full_scale=255.0,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
    )

    def save(update, weights, training=(), model="resnet8"):
        state = {
            "update": update,
            "recipe": {"model": model},
            "dataset": to_dict(images),
            "best": {"update": 1},
        }
        folder = Path(f"run/checkpoints/step-{update:08d}")
        return save_checkpoint(folder, weights, training, state)

    return save


@pytest.fixture(scope="session")
def written(device, arrays_of):
    """written(file, style, change, model, **options) writes a net's names with random values;
    returns them as ours.
    """

    def write(file, style="ours", change=None, model="resnet8", **options):
        ours = arrays_of(create_model(model, num_classes=3, **options))
        ours = {
            name: np.random.default_rng(0).random(array.shape, np.float32)
            for name, array in ours.items()
        }
        arrays = {
            names.rename(name, style, names.is_basic(ours)): array for name, array in ours.items()
        }
        if change:
            change(arrays)
        write_arrays(file, arrays)
        return ours

    return write
