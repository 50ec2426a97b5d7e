import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.models import create_model

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # torchvision's published figures, 1,000 classes
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        pytest.param("resnet101", 44_549_160, marks=pytest.mark.slow),
        pytest.param("resnet152", 60_192_808, marks=pytest.mark.slow),
    ],
)
def test_imagenet_parameter_counts(name, count):
    assert sum(parameter.size for parameter in create_model(name).trainable_params()) == count


@pytest.mark.parametrize(("depth", "option_a"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_cifar_parameter_counts(depth, option_a):
    # The paper's option A has no weights in its shortcuts; our two projections add
    # 16·32 + 2·32 + 32·64 + 2·64 = 2,752.
    net = create_model(f"resnet{depth}", num_classes=10)
    assert sum(parameter.size for parameter in net.trainable_params()) == option_a + 2_752


def test_names_are_torchvisions_tree():
    names = {parameter.name for parameter in create_model("resnet50").get_parameters()}
    assert {
        "conv1.weight",
        "bn1.gamma",
        "bn1.moving_variance",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.moving_mean",
        "layer4.2.bn3.beta",
        "fc.bias",
    } <= names
    # 53 convolutions, 53 BatchNorms of four, Dense weight and bias
    assert len(names) == 53 + 4 * 53 + 2


def test_padding_stride_and_batch_norm_constants():
    net = create_model("resnet50")
    cells = dict(net.cells_and_names())
    for cell in cells.values():
        if isinstance(cell, nn.Conv2d):
            assert cell.pad_mode == "pad"
            assert np.unique(cell.padding).tolist() == [(cell.kernel_size[0] - 1) // 2]
        if isinstance(cell, nn.BatchNorm2d):
            assert (cell.eps, round(1 - cell.momentum, 9)) in ((1e-5, 0.1), (1e-5, 0.9))
    block = cells["layer2.0"]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))
    assert (net.maxpool.kernel_size, net.maxpool.stride) in ((3, 2), ((3, 3), (2, 2)))


def test_moving_statistics_take_a_tenth_of_the_batch():
    net = create_model("resnet8", num_classes=2)
    net.set_train(True)
    x = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    mean = net.conv1(Tensor(x)).asnumpy().mean((0, 2, 3))
    net(Tensor(x))
    np.testing.assert_allclose(net.bn1.moving_mean.asnumpy(), 0.1 * mean, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("stem", "size"), [("imagenet", 4), ("cifar", 16)])
def test_stems(stem, size):
    net = create_model("resnet18", num_classes=7, stem=stem, in_channels=1)
    net.set_train(False)
    x = Tensor(np.zeros((1, 1, 16, 16), np.float32))
    assert net.maxpool(net.conv1(x)).shape == (1, 64, size, size)
    assert net(x).shape == (1, 7)


def test_max_pool_pads_both_sides_with_minus_infinity():
    net = create_model("resnet18")
    x = -1.0 - np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    # windows start at −1 and 1; padding with 0 would win over these negative values
    assert net.maxpool(Tensor(x)).asnumpy().tolist() == [[[[-1.0, -2.0], [-5.0, -6.0]]]]


def test_unknown_model_names_the_nearest():
    with pytest.raises(ValueError, match="model: 'resnet5' is unknown; did you mean resnet56 or"):
        create_model("resnet5")


def test_initialisations_have_their_spread():
    def weights(name):
        net = create_model("resnet18", num_classes=1000, initialisation=name)
        return net.layer3[1].conv1.weight.asnumpy(), net.fc.weight.asnumpy(), net.fc.bias.asnumpy()

    conv, dense, bias = weights("torchvision")
    fan = 256 * 9
    assert conv.std() == pytest.approx(np.sqrt(2 / fan), rel=0.01)  # He-normal over fan-out
    for values in (dense, bias):
        assert np.abs(values).max() == pytest.approx(np.sqrt(1 / 512), rel=0.02)
    assert dense.std() == pytest.approx(np.sqrt(1 / 512 / 3), rel=0.01)
    conv, dense, bias = weights("torch")
    assert np.abs(conv).max() == pytest.approx(np.sqrt(1 / fan), rel=0.01)
    assert conv.std() == pytest.approx(np.sqrt(1 / fan / 3), rel=0.01)
    assert np.abs(bias).max() == pytest.approx(np.sqrt(1 / 512), rel=0.02)
    conv, dense, bias = weights("he_uniform")
    assert np.abs(conv).max() == pytest.approx(np.sqrt(6 / fan), rel=0.01)
    assert np.abs(dense).max() <= 0.02 + 1e-6  # two standard deviations of 0.01
    assert not bias.any()
    conv, _, _ = weights("xavier_uniform")
    assert np.abs(conv).max() == pytest.approx(np.sqrt(6 / (2 * fan)), rel=0.01)


def test_zero_init_residual_makes_blocks_the_identity():
    net = create_model("resnet8", num_classes=3, zero_init_residual=True)
    net.set_train(True)
    x = Tensor(np.abs(np.random.default_rng(0).normal(size=(2, 16, 8, 8))).astype(np.float32))
    np.testing.assert_array_equal(net.layer1(x).asnumpy(), x.asnumpy())
