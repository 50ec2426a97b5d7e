"""The model of a file, from shapes alone."""

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
    """Weights of the two: test_convert.py."""
    assert {name: same_parameters(name) for name in MODELS if same_parameters(name)} == {
        "resnet50": ("genet50_minus",),
        "genet50_minus": ("resnet50",),
    }


def test_an_unknown_model_is_named(raises_line):
    with raises_line("model: 'resnet51' is unknown; did you mean resnet"):
        recognise_model({}, "resnet51")
