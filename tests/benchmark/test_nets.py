"""The measured nets: known sizes, and the same net for PyTorch."""

import math

import pytest

from resnet_fn.benchmark.nets import NETS, build, check_name, recipe, specification
from resnet_fn.config.cli import UsageError

# torchvision's and timm's counts with 1,000 classes (GENet: the paper's θ⁺, as in tests/models); with 10 classes
# ResNet-18 with a 3x3 stem, and ResNet-20 as in the paper but for its shortcuts, which are 1x1 convolutions here.
WEIGHTS = {
    "resnet18-cifar": 11_689_512 - 990 * 513 - 64 * 3 * (49 - 9),
    "resnet50-224": 25_557_032,
    "se_resnet50-224": 25_557_032 + 2_514_944 + 16_048,
    "genet50_plus-224": 25_557_032 + 5_519_360 + 30_208 + 2_514_944 + 16_048,
    "resnet20-cifar": 272_474,
    "resnet20-digits": 272_474,
}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", NETS)
def test_both_sides_build_the_net_of_the_name(name):
    """What the nets compute is compared in tests/parity/torch_side/test_reference.py, forward and backward."""
    pytest.importorskip("torch")
    from resnet_fn.benchmark.sides import torch_net

    spec = specification(name, threads=1)
    ours = sorted(parameter.shape for parameter in build(spec).trainable_params())
    theirs = sorted(tuple(parameter.shape) for parameter in torch_net(spec).parameters())
    assert ours == theirs
    assert sum(map(math.prod, ours)) == WEIGHTS[name]


def test_a_specification_is_a_net_with_its_threads():
    spec = specification("genet50_plus-224", threads=2)
    assert (spec["classes"], spec["threads"], spec["image_size"]) == (1000, 2, 224)
    assert specification("resnet20-digits", threads=0)["classes"] == 10
    chosen = recipe(spec)
    assert (chosen.model, chosen.batch_size) == ("genet50_plus", 8)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(UsageError, match=r"^--net: 'se-resnet50' is unknown; .*se_resnet50-224"):
        check_name("net", "se-resnet50", NETS)
