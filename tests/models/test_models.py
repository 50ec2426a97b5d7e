"""Each model has its number of parameters, and wrong names have a hint."""

import dataclasses

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.models import MODELS, build_net, create_model
from resnet_fn.models.attention import GlobalDepthwise
from resnet_fn.models.resnet import ResNet

pytestmark = pytest.mark.usefixtures("device")


def size_of(net):
    return sum(parameter.size for parameter in net.trainable_params())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # torchvision's published figures, 1,000 classes
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        # timm's resnet50d, 25.58 M: the stem has 3·32·9 + 32·32·9 + 32·64·9 = 28,512 weights and
        # 128 of BatchNorm instead of 64·3·49 = 9,408
        ("resnet50 d", 25_557_032 + 28_512 + 128 - 9_408),
        # R50 with each 3x3 in 32 groups at twice the width
        ("resnext50_32x4d", 25_028_904),
        # SE: C²/8 weights and 17·C/16 biases in a block of C channels. R18, two blocks each of 64,
        # 128, 256, 512: 2·(512 + 2,048 + 8,192 + 32,768) = 87,040 and 2·17/16·960 = 2,040
        ("se_resnet18", 11_689_512 + 87_040 + 2_040),
        # R50: 3·8,192 + 4·32,768 + 6·131,072 + 3·524,288 weights, 17/16 · 15,104 biases; timm
        # publishes 28.09 M
        ("se_resnet50", 25_557_032 + 2_514_944 + 16_048),
        # θ⁻ adds nothing. θ: 3·256·56² + 4·512·28² + 6·1,024·14² + 3·2,048·7² = 5,519,360 weights
        # and 2·15,104 of BatchNorm; θ⁺ the excite of SE. With statistics (2 for each of R50's
        # 26,560 and the gathers' 15,104 channels) 31.19 and 33.72 M: the paper's 31.2 and 33.7.
        ("genet50_minus", 25_557_032),
        ("genet50", 25_557_032 + 5_519_360 + 30_208),
        ("genet50_plus", 25_557_032 + 5_519_360 + 30_208 + 2_514_944 + 16_048),
    ],
)
def test_imagenet_nets_have_their_published_parameter_counts(name, count):
    name, _, stem = name.partition(" ")
    assert size_of(create_model(name, stem=stem)) == count


@pytest.mark.parametrize(("depth", "option_a"), [(20, 269_722), (110, 1_727_962)])
def test_cifar_nets_have_the_papers_parameter_counts(depth, option_a):
    # The paper's option A has no weights in its shortcuts; our two projections add
    # 16·32 + 2·32 + 32·64 + 2·64 = 2,752.
    assert size_of(create_model(f"resnet{depth}", num_classes=10)) == option_a + 2_752


def test_float16_keeps_gathers_in_float32():
    """A sum of 8 x 8 values of 2,000 is beyond float16's largest number."""
    net = create_model("genet50", num_classes=3, image_size=32, precision="fp16")
    (gather, *_) = (cell for _, cell in net.cells_and_names() if isinstance(cell, GlobalDepthwise))
    gather.weight.set_data(Tensor(np.ones(gather.weight.shape, np.float32)))
    assert gather(Tensor(np.full((1, 256, 8, 8), 2000, np.float16))).asnumpy().max() == 128_000


def test_gather_fits_its_own_image_size_only():
    net = create_model("genet50", num_classes=3, image_size=32)
    net.set_train(False)
    # also 8x8 after the stem
    assert net(Tensor(np.zeros((1, 3, 31, 31), np.float32))).shape == (1, 3)
    with pytest.raises(
        ValueError, match="needs feature maps of 8x8, but got 16x16; create the model with your"
    ):
        net(Tensor(np.zeros((1, 3, 64, 64), np.float32)))


RECIPE = Recipe(model="resnet8", image_size=8, zero_init_residual=True)
SPEC = load_dataset(RECIPE).input


def bits(net):
    return {parameter.name: parameter.asnumpy().tobytes() for parameter in net.get_parameters()}


def test_a_built_net_fits_channels_and_classes():
    net = build_net(RECIPE, dataclasses.replace(SPEC, channels=2, classes=("a", "b", "c")))
    assert net(Tensor(np.zeros((5, 2, 8, 8), np.float32))).shape == (5, 3)
    assert not net.layer1[0].bn2.gamma.asnumpy().any()


def test_the_seed_alone_decides_the_weights():
    first = bits(build_net(RECIPE, SPEC))
    assert bits(build_net(RECIPE, SPEC)) == first
    other = bits(build_net(RECIPE.changed(seed=1), SPEC))
    assert other["conv1.weight"] != first["conv1.weight"]


def test_unknown_models_and_misfitting_sizes_are_rejected():
    with pytest.raises(ValueError, match="model: 'resnet5' is unknown; did you mean resnet56 or"):
        create_model("resnet5")
    recipe = Recipe(model="genet50", image_size=32, eval_size=48)
    message = (
        r"^model: genet50 fits only images of 32 pixels, but evaluation uses 48; give "
        r"--eval-size 32$"
    )
    with pytest.raises(ValueError, match=message):
        build_net(recipe, SPEC)


@pytest.mark.parametrize("change", [{"groups": 2, "base_width": 32}, {"base_width": 128}])
def test_basic_blocks_have_no_groups_or_width(change):
    with pytest.raises(ValueError, match="do not fit BasicBlock; use Bottleneck"):
        ResNet(dataclasses.replace(MODELS["resnet8"], **change), num_classes=10)
