"""What a net computes while its operations are MindSpore's own, and after that."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.models.resnet import BasicBlock, Design, ResNet
from resnet_fn.models.winograd import Conv2d, standard_operations, use_winograd

pytestmark = pytest.mark.usefixtures("device")


def small(gate):
    return ResNet(Design(BasicBlock, (1, 1), (16, 32), stem="cifar", attention=gate), 3, image_size=16).set_train(False)


def by_products(net):
    """The cells that compute by matrix products."""
    cells = [(name, cell) for name, cell in net.cells_and_names()]
    convolutions = {name for name, cell in cells if isinstance(cell, Conv2d) and cell.winograd}
    return convolutions, {name for name, cell in cells if getattr(cell, "standard", None) is False}


@pytest.mark.parametrize(("gate", "gates"), [("", 0), ("se", 2), ("ge-minus", 2), ("ge-plus", 4)])
def test_all_operations_are_mindspores_and_end(gate, gates):
    net = small(gate)
    use_winograd(net)
    images = Tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32))
    before, own = net(images).asnumpy(), by_products(net)
    assert len(own[1]) == gates
    with standard_operations(net):
        assert by_products(net) == (set(), set())
        inside = net(images).asnumpy()
    assert by_products(net) == own
    assert (before == net(images).asnumpy()).all()
    assert (before != inside).any()
    np.testing.assert_allclose(before, inside, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gate", ["se", "ge-minus", "ge-plus"])
def test_a_gates_graph_holds_no_number_of_samples(gate, tmp_path):
    """One for two samples answers for five."""
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    net = small(gate)
    images = np.random.default_rng(0).normal(size=(5, 3, 16, 16)).astype(np.float32)
    with standard_operations(net):
        mindspore.export(net, Tensor(images[:2]), file_name=str(tmp_path / "net"), file_format="ONNX")
    model = onnx.load(str(tmp_path / "net.onnx"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images})
    expected = net(Tensor(images)).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
