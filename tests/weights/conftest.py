"""Fixtures: arrays and files of small nets."""

import numpy as np
import pytest

from resnet_fn.models import create_model
from resnet_fn.weights import names
from resnet_fn.weights.files import write_arrays


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
