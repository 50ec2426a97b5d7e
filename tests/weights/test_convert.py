import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn import convert
from resnet_fn.models import create_model
from resnet_fn.weights import names
from resnet_fn.weights.files import read_arrays
from resnet_fn.weights.load import convert_weights, load_weights

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("style", names.STYLES)
def test_round_trip_is_byte_identical(style, in_empty_folder, written):
    written("a.safetensors")
    assert convert_weights("a.safetensors", "b.ckpt", style)["from"] == "ours"
    assert convert_weights("b.ckpt", "c.safetensors")["from"] == style
    assert (in_empty_folder / "c.safetensors").read_bytes() == (in_empty_folder / "a.safetensors").read_bytes()


def test_torch_loads_what_we_write_and_computes_the_same(written):
    torch = pytest.importorskip("torch", reason="the reference net needs torch")
    from resnet_fn.parity.reference.nets import reference_net

    ours = written("a.safetensors")
    convert_weights("a.safetensors", "a.pth", "torchvision")
    ref = reference_net("resnet8", num_classes=3).eval()
    ref.load_state_dict(torch.load("a.pth", weights_only=True), strict=True)
    net = create_model("resnet8", num_classes=3)
    load_weights(net, "a.pth")
    images = np.random.default_rng(1).random((2, 3, 16, 16), np.float32)
    with torch.no_grad():
        theirs = ref(torch.tensor(images)).numpy()
    np.testing.assert_allclose(net.set_train(False)(Tensor(images)).asnumpy(), theirs, rtol=1e-4)
    assert ours["fc.bias"].tobytes() == ref.fc.bias.detach().numpy().tobytes()
    # PyTorch's own file: BatchNorm counters are dropped, a wrapper and DataParallel's prefix are seen through.
    torch.save({"state_dict": {f"module.{key}": value for key, value in ref.state_dict().items()}}, "b.pth")
    convert_weights("b.pth", "b.safetensors")
    assert set(read_arrays("b.safetensors")) == set(ours)


def test_command(capsys, written):
    written("a.safetensors", "torchvision")
    assert convert.main(["a.safetensors", "b.ckpt", "--to", "official"]) == 0
    # 9 convolutions, 9 BatchNorms of four, Dense weight and bias
    assert capsys.readouterr().out == (
        "resnet8: 47 tensors from torchvision names to official names in b.ckpt, read from a.safetensors\n"
    )
    assert "layer1.0.bn1d.gamma" in read_arrays("b.ckpt")
    with pytest.raises(ValueError, match=r"b\.txt: cannot be written; end its name in \.safetensors"):
        convert.main(["a.safetensors", "b.txt"])
