"""Fixture: the weights of a small net."""

from collections.abc import Callable

import numpy as np
import pytest

from resnet_fn.models import create_model
from resnet_fn.weights.files import write_arrays
from resnet_fn.weights.names import rename

Arrays = dict[str, np.ndarray]


@pytest.fixture
def write_resnet8() -> Callable[..., Arrays]:
    """write_resnet8(file, style, **changes) writes a resnet8 for the digits, the same at every
    call.
    """

    def write(file: str, style: str = "ours", **changes: np.ndarray) -> Arrays:
        rng = np.random.default_rng(0)
        arrays = {}
        for p in create_model("resnet8", num_classes=10, in_channels=1).get_parameters():
            drawn = rng.random(p.shape)
            arrays[p.name] = changes.get(p.name, drawn).astype(np.float32)
        write_arrays(file, {rename(name, style, True): array for name, array in arrays.items()})
        return arrays

    return write
