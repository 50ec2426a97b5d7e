"""Every way to compute a convolution gives the convolution and its gradients."""

import re
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor
from numpy.lib.stride_tricks import sliding_window_view

from resnet_fn.models import MODELS, create_model
from resnet_fn.models.convolution import Conv2d, standard_operations, use_products
from resnet_fn.models.resnet import BasicBlock, Design, ResNet, conv
from resnet_fn.runtime import instructions
from resnet_fn.runtime.instructions import FASTER_UNLIMITED, PRODUCTS, Choice
from resnet_fn.runtime.versions import at_least

pytestmark = pytest.mark.usefixtures("device")


def direct(x, weight, given, stride):
    """The convolution and its gradients in float64: outputs, gradient of x, gradient of the
    weight.
    """
    height, width = x.shape[2:]
    size = weight.shape[2]
    pad = size // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    weight, given = weight.astype(np.float64), given.astype(np.float64)
    windows = sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]
    out = np.einsum("nchwij,ocij->nohw", windows, weight)
    of_weight = np.einsum("nohw,nchwij->ocij", given, windows)
    of_x = np.zeros_like(padded)
    windows = sliding_window_view(of_x, (size, size), (2, 3), writeable=True)
    for i, j in np.ndindex(size, size):
        part = windows[:, :, ::stride, ::stride, i, j]
        part += np.einsum("nohw,oc->nchw", given, weight[:, :, i, j])
    return out, of_x[:, :, pad : pad + height, pad : pad + width], of_weight


def is_product(cell):
    """Whether the convolution runs as matrix products, in a way or by MindSpore."""
    geometry = (cell.kernel_size, cell.stride, cell.padding, cell.group)
    return bool(cell.way) or geometry == ((1, 1), (1, 1), 0, 1)


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def relative(actual, expected):
    return np.sqrt(((actual.asnumpy() - expected) ** 2).mean() / (expected**2).mean())


# A way, the size of the filter, the stride, and the shape [N, C, O, H, W].
GEOMETRIES = [
    ("winograd", 3, 1, (4, 16, 24, 16, 16)),
    ("winograd", 3, 1, (3, 64, 32, 9, 14)),
    ("winograd", 3, 1, (2, 128, 64, 7, 7)),
    ("winograd", 3, 1, (5, 32, 32, 2, 1)),
    ("lean winograd", 3, 1, (3, 64, 32, 9, 14)),
    ("strided winograd", 3, 2, (4, 16, 24, 16, 16)),
    ("strided winograd", 3, 2, (3, 64, 32, 9, 14)),  # neither size is a multiple of a tile's
    ("strided winograd", 3, 2, (2, 128, 64, 7, 7)),
    ("strided winograd", 3, 2, (5, 32, 32, 2, 1)),
    ("sampled", 1, 2, (4, 32, 64, 15, 9)),
    ("sampled", 1, 2, (2, 16, 16, 8, 8)),
    ("", 1, 1, (2, 16, 16, 8, 8)),  # MindSpore's operation is a product
    ("columns", 3, 1, (4, 3, 16, 12, 12)),  # a CIFAR stem
    ("columns", 3, 2, (4, 3, 16, 13, 12)),  # the D stem
    ("columns", 7, 2, (9, 3, 16, 33, 20)),  # the ImageNet stem, of a batch in slices
    ("columns", 7, 2, (2, 1, 64, 16, 16)),
]


@pytest.mark.parametrize(("way", "size", "stride", "shape"), GEOMETRIES)
def test_outputs_and_gradients_are_those_of_the_convolution(way, size, stride, shape):
    n, c, o, height, width = shape
    rng = np.random.default_rng(0)
    x = normal(rng, n, c, height, width)
    given = normal(rng, n, o, -(-height // stride), -(-width // stride))
    weight = normal(rng, o, c, size, size) / np.float32(np.sqrt(size**2 * c))
    cell = conv(c, o, size, stride)
    cell.weight.set_data(Tensor(weight))
    assert cell.fitting_way(all_products=way != "winograd") == way
    cell.set_way(way)
    assert is_product(cell)

    def total(x):
        y = cell(x)
        return (y * Tensor(given)).sum(), y

    gradients = mindspore.value_and_grad(total, 0, cell.trainable_params(), has_aux=True)
    (_, y), (of_x, (of_weight,)) = mindspore.jit(gradients)(Tensor(x))
    expected = direct(x, weight, given, stride)
    assert y.shape == given.shape
    for actual, wanted in zip((y, of_x, of_weight), expected, strict=True):
        assert relative(actual, wanted) < 2e-6  # measured: 0.1e-6 to 1.6e-6
    assert relative(cell(Tensor(x)), expected[0]) < 2e-6  # not compiled


def test_less_memory_gives_the_same_bits():
    rng = np.random.default_rng(0)
    x, given = (Tensor(normal(rng, 3, c, 9, 14)) for c in (16, 24))
    cell = conv(16, 24, 3, 1)

    def total(x):
        return (cell(x) * given).sum()

    def results(way):
        cell.set_way(way)
        of_x, (of_weight,) = mindspore.jit(mindspore.grad(total, 0, cell.trainable_params()))(x)
        return [array.asnumpy() for array in (cell(x), of_x, of_weight)]

    pairs = zip(results("winograd"), results("lean winograd"), strict=True)
    assert all((a == b).all() for a, b in pairs)


def convolutions(net):
    return {name: cell for name, cell in net.cells_and_names() if isinstance(cell, Conv2d)}


def ways(net):
    return {name: cell.way for name, cell in convolutions(net).items() if cell.way}


def test_only_fitting_convolutions_are_computed_by_winograd():
    net = create_model("resnet8", num_classes=3)
    fitting = ["layer1.0.conv1", "layer1.0.conv2", "layer2.0.conv2", "layer3.0.conv2"]
    # not the stem of 3 channels, not what strides, not the 1x1 projections
    assert ways(net) == dict.fromkeys(fitting, "winograd")
    assert not ways(create_model("resnet8", precision="fp16"))
    assert not ways(create_model("resnext50_32x4d", image_size=32))  # 32 groups
    assert [*ways(create_model("resnet50", image_size=32)).values()] == ["winograd"] * 13
    for other in (
        Conv2d(16, 16, 3, pad_mode="same"),
        Conv2d(16, 16, 3, pad_mode="pad", padding=2, dilation=2),
        Conv2d(16, 16, 3, pad_mode="pad", padding=1, has_bias=True),
        Conv2d(16, 16, 3, pad_mode="pad", padding=1, group=2),
        Conv2d(16, 16, 5, 2, pad_mode="pad", padding=2),
        Conv2d(16, 16, 3, 3, pad_mode="pad", padding=1),
    ):
        assert other.fitting_way() == other.fitting_way(all_products=True) == ""
        assert not is_product(other)


@pytest.fixture
def all_instructions(monkeypatch):
    """Nets are built as after the choice of all instructions; what oneDNN uses stays."""
    monkeypatch.setattr(instructions, "choice", lambda: Choice(PRODUCTS, "of a test"))


def by_products(net):
    """The cells that compute by matrix products."""
    gates = {
        name for name, cell in net.cells_and_names() if getattr(cell, "standard", None) is False
    }
    return ways(net), gates


def check_standard_operations(gate, gates):
    net = ResNet(
        Design(BasicBlock, (1, 1), (16, 32), stem="cifar", attention=gate), 3, image_size=16
    )
    net.set_train(False)
    use_products(net)
    images = Tensor(normal(np.random.default_rng(0), 2, 3, 16, 16))
    before, own = net(images).asnumpy(), by_products(net)
    assert len(own[1]) == gates
    with standard_operations(net):
        assert by_products(net) == ({}, set())
        inside = net(images).asnumpy()
    assert by_products(net) == own
    assert (before == net(images).asnumpy()).all()
    assert (before != inside).any()
    np.testing.assert_allclose(before, inside, rtol=1e-5, atol=1e-5)
    return {*own[0].values()}


@pytest.mark.parametrize(("gate", "gates"), [("", 0), ("se", 2), ("ge-minus", 2), ("ge-plus", 4)])
def test_an_export_uses_standard_operations_then_ours_again(gate, gates):
    assert check_standard_operations(gate, gates) == {"winograd"}


@pytest.mark.usefixtures("all_instructions")
def test_no_way_of_products_remains_inside_an_export():
    assert check_standard_operations("", 0) == {
        "lean winograd",
        "strided winograd",
        "sampled",
        "columns",
    }


STEPS = """
import sys
import resnet_fn
from resnet_fn.runtime import instructions, process
instructions.needs_limit = lambda cpu: True  # on any machine
process.start("CPU", 1)
assert instructions.choose_for("resnet18").convolutions == "products"
import mindspore, numpy as np
from mindspore import Tensor
from resnet_fn.models.convolution import use_products
from resnet_fn.models.resnet import BasicBlock, Bottleneck, Design, ResNet
def run(net):
    def total(x):
        return net(x).sum()
    gradients = mindspore.jit(mindspore.value_and_grad(total, None, net.trainable_params()))
    gradients(Tensor(np.ones((2, 3, 32, 32), np.float32)))[0].asnumpy()
for text in sys.argv[1:]:
    print("net", text, flush=True)
    net = eval(text)
    use_products(net)
    run(net.set_train(True))
"""


SMALL = "ResNet(Design({}, (1, 1), (32, 64), stem='{}'), 3, image_size=32)"
NETS = [SMALL.format(*names) for names in (("BasicBlock", "cifar"), ("Bottleneck", "imagenet"))]
NETS.append(SMALL.format("BasicBlock", "d"))


ALL_INSTRUCTIONS = {"ONEDNN_MAX_CPU_ISA": "ALL", "seconds": 600}
HAS_REFERENCE = instructions.this_cpu().has_avx512 and at_least(2, 9)
# oneDNN's description of a convolution with a kernel of one pixel, stride 1 and no padding
ONE_PIXEL = re.compile(r"mb\d+_ic\d+oc\d+_ih\d+oh\d+kh1sh1dh0ph0_iw\d+ow\d+kw1sw1dw0pw0")


def test_no_operation_takes_the_reference_kernel(python):
    """By oneDNN's log, forward and backward; the nets that are computed so have these designs.

    With AVX-512, the convolutions that are no products take it: those with another geometry than
    one pixel, except gradients of weights. The log has the geometry on every machine.
    """
    fast = frozenset().union(*FASTER_UNLIMITED.values())
    assert {(MODELS[name].groups, MODELS[name].attention) for name in fast} == {(1, "")}
    Path("steps.py").write_text(STEPS)
    out = python("steps.py", *NETS, **ALL_INSTRUCTIONS, ONEDNN_VERBOSE="1").stdout
    for net, log in zip(NETS, re.split("^net .*", out, flags=re.M)[1:], strict=True):
        calls = [line.partition("exec,cpu,")[2] for line in log.splitlines() if "exec,cpu," in line]
        convolutions = [call for call in calls if call.startswith("convolution,")]
        images = [call for call in convolutions if ",backward_weights," not in call]
        directions = {
            direction for call in images for direction in call.split(",") if "ward" in direction
        }
        assert directions == {"forward_training", "backward_data"}, net
        assert len(images) < len(convolutions), net
        assert [call for call in images if not ONE_PIXEL.fullmatch(call.split(",")[-2])] == [], net
        if HAS_REFERENCE:
            assert any("avx512" in call for call in calls), net
            assert not [call for call in calls if "ref:any" in call or ",ref" in call], net


@pytest.mark.slow
@pytest.mark.skipif(not HAS_REFERENCE, reason="needs AVX-512 and MindSpore 2.9")
def test_all_instructions_round_no_worse(python):
    """The tests of outputs and gradients, whose limit is 2e-6."""
    name = "test_outputs_and_gradients_are_those_of_the_convolution"
    words = "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", name, __file__
    assert f"{len(GEOMETRIES)} passed" in python(*words, **ALL_INSTRUCTIONS).stdout
