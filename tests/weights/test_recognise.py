"""The model of a file, from shapes alone."""

import numpy as np
import pytest

from resnet_fn.models import MODELS, create_model
from resnet_fn.weights.recognise import recognise_model, same_parameters

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("name", ["se_resnet18", "genet50_plus"])
def test_models_are_recognised(name, arrays_of):
    net = create_model(name, num_classes=7, image_size=32)
    model = recognise_model(arrays_of(net))
    assert (model["name"], model["num_classes"], model["stem"]) == (name, 7, "imagenet")
    assert name != "genet50_plus" or model["image_size"] == 32


def test_genet50_minus_and_resnet50_cannot_be_told_apart():
    # all that is looked at
    shapes = {"conv1.weight": (64, 3, 7, 7), "bn1.gamma": (64,), "fc.weight": (9, 2048)}
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        for block in range(depth):
            shapes |= {f"layer{stage}.{block}.conv{i}.weight": (64, 64, 1, 1) for i in (1, 2, 3)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert recognise_model(arrays)["name"] == "resnet50"
    model = recognise_model(arrays, "genet50_minus")
    assert [model[key] for key in ("name", "num_classes", "in_channels", "stem")] == [
        "genet50_minus",
        9,
        3,
        "imagenet",
    ]
    assert {name: same_parameters(name) for name in MODELS if same_parameters(name)} == {
        "resnet50": ("genet50_minus",),
        "genet50_minus": ("resnet50",),
    }
    with pytest.raises(ValueError, match=r"model: 'resnet51' is unknown; did you mean resnet"):
        recognise_model(arrays, "resnet51")
