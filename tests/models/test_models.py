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
        # R50 with each 3x3 in 32 groups at twice the width, or at twice the width
        ("resnext50_32x4d", 25_028_904),
        pytest.param("wide_resnet50_2", 68_883_240, marks=pytest.mark.slow),
        # SE: C²/8 weights and 17·C/16 biases in a block of C channels. R18, two blocks each of 64, 128, 256, 512:
        # 2·(512 + 2,048 + 8,192 + 32,768) = 87,040 and 2·17/16·960 = 2,040
        ("se_resnet18", 11_689_512 + 87_040 + 2_040),
        ("se_resnet34", 21_797_672 + 157_184 + 4_012),
        # R50: 3·8,192 + 4·32,768 + 6·131,072 + 3·524,288 weights, 17/16 · 15,104 biases; timm publishes 28.09 M
        ("se_resnet50", 25_557_032 + 2_514_944 + 16_048),
        pytest.param("se_resnet101", 49_326_872, marks=pytest.mark.slow),  # timm: 49.33 M
        # θ⁻ adds nothing. θ: 3·256·56² + 4·512·28² + 6·1,024·14² + 3·2,048·7² = 5,519,360 weights and
        # 2·15,104 of BatchNorm; θ⁺ the excite of SE. With statistics (2 for each of R50's 26,560 and the gathers'
        # 15,104 channels) 31.19 and 33.72 M: the paper's 31.2 and 33.7.
        ("genet50_minus", 25_557_032),
        ("genet50", 25_557_032 + 5_519_360 + 30_208),
        ("genet50_plus", 25_557_032 + 5_519_360 + 30_208 + 2_514_944 + 16_048),
        pytest.param("resnet101", 44_549_160, marks=pytest.mark.slow),
        pytest.param("resnet152", 60_192_808, marks=pytest.mark.slow),
    ],
)
def test_imagenet_parameter_counts(name, count):
    assert sum(parameter.size for parameter in create_model(name).trainable_params()) == count


def test_d_stem_parameter_count():
    # timm's resnet50d, 25.58 M: 3·32·9 + 32·32·9 + 32·64·9 = 28,512 weights and 128 of BatchNorm for the stem's
    # 64·3·49 = 9,408
    net = create_model("resnet50", stem="d")
    assert sum(parameter.size for parameter in net.trainable_params()) == 25_557_032 + 28_512 + 128 - 9_408


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


def test_gather_fits_its_own_image_size_only():
    net = create_model("genet50", num_classes=3, image_size=32)
    net.set_train(False)
    assert net(Tensor(np.zeros((1, 3, 31, 31), np.float32))).shape == (1, 3)  # also 8x8 after the stem
    with pytest.raises(ValueError, match="gather spans 8x8 features, its input has 16x16; create the model with the"):
        net(Tensor(np.zeros((1, 3, 64, 64), np.float32)))


def test_float16_keeps_gathers_in_float32():
    net = create_model("genet50_plus", num_classes=3, image_size=32, precision="fp16")
    net.set_train(False)
    x = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    assert np.isfinite(net(Tensor(x)).asnumpy()).all()


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
