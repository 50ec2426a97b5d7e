"""Weights in and out: every style and format, strict, byte-identical, and no code from a file runs."""

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn import convert
from resnet_fn.migrate import names
from resnet_fn.migrate.files import read_arrays, write_arrays
from resnet_fn.migrate.weights import WeightsError, convert_weights, load_weights, read_weights, recognise_model
from resnet_fn.models import MODELS, create_model

pytestmark = pytest.mark.usefixtures("device")


def arrays_of(net) -> dict[str, np.ndarray]:
    return {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def written(file: str, style: str = "ours", change=None, model: str = "resnet8", **options) -> dict[str, np.ndarray]:
    ours = arrays_of(create_model(model, num_classes=3, **options))
    ours = {name: np.random.default_rng(0).random(array.shape, np.float32) for name, array in ours.items()}
    arrays = {names.rename(name, style, names.is_basic(ours)): array for name, array in ours.items()}
    if change:
        change(arrays)
    write_arrays(file, arrays)
    return ours


@pytest.mark.parametrize("style", names.STYLES)
@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_every_style_in_every_format_loads(style, ending):
    if ending == "pth":
        pytest.importorskip("torch", reason="reading .pth needs torch")
    ours = written(f"a.{ending}", style)
    net = create_model("resnet8", num_classes=3)
    load_weights(net, f"a.{ending}")
    for name, array in arrays_of(net).items():
        assert array.tobytes() == ours[name].tobytes(), name
    assert recognise_model(read_weights(f"a.{ending}").arrays)["name"] == "resnet8"


@pytest.mark.parametrize("style", names.STYLES)
def test_round_trip_is_byte_identical(style, in_empty_folder):
    written("a.safetensors")
    assert convert_weights("a.safetensors", "b.ckpt", style)["from"] == "ours"
    assert convert_weights("b.ckpt", "c.safetensors")["from"] == style
    assert (in_empty_folder / "c.safetensors").read_bytes() == (in_empty_folder / "a.safetensors").read_bytes()


def test_torch_loads_what_we_write_and_computes_the_same():
    torch = pytest.importorskip("torch", reason="the reference net needs torch")
    from resnet_fn.migrate.reference import reference_net

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


@pytest.mark.parametrize("name", [name for name in MODELS if name in ("resnet18", "se_resnet18", "genet50_plus")])
def test_models_are_recognised(name):
    net = create_model(name, num_classes=7, image_size=32)
    found = recognise_model(arrays_of(net))
    assert (found["name"], found["num_classes"], found["stem"]) == (name, 7, "imagenet")
    assert name != "genet50_plus" or found["image_size"] == 32


def test_what_does_not_fit_is_listed_and_nothing_is_assigned():
    def change(arrays):
        del arrays["bn1.beta"], arrays["layer3.0.conv2.weight"]
        arrays["layer9.bias"] = np.zeros(1, np.float32)
        arrays["conv1.weight"] = np.zeros((16, 1, 3, 3), np.float32)

    written("a.safetensors", change=change)
    net = create_model("resnet8", num_classes=3)
    before = arrays_of(net)
    with pytest.raises(WeightsError) as error:
        load_weights(net, "a.safetensors")
    assert str(error.value) == (
        "a.safetensors: does not fit the net (missing: bn1.beta, layer3.0.conv2.weight; unexpected: layer9.bias; "
        "of another shape: conv1.weight (16, 1, 3, 3) instead of (16, 3, 3, 3)); give the model that they belong to"
    )
    assert all(array.tobytes() == before[name].tobytes() for name, array in arrays_of(net).items())


def test_reset_head_is_the_only_way_to_other_classes():
    ours = written("a.safetensors")
    net = create_model("resnet8", num_classes=5)
    head = net.fc.weight.asnumpy()
    with pytest.raises(WeightsError, match=r"of another shape: fc.weight .*; --reset-head keeps the net's own"):
        load_weights(net, "a.safetensors")
    load_weights(net, "a.safetensors", reset_head=True)
    assert net.fc.weight.asnumpy().tobytes() == head.tobytes()
    assert net.conv1.weight.asnumpy().tobytes() == ours["conv1.weight"].tobytes()


def test_a_malicious_pickle_does_not_run(in_empty_folder):
    torch = pytest.importorskip("torch", reason="reading .pth needs torch")

    class Malicious:
        def __reduce__(self):
            return (open, (str(in_empty_folder / "ran"), "w"))

    torch.save({"conv1.weight": Malicious()}, "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth: holds more than tensors \(code could run"):
        read_weights("a.pth")
    assert not (in_empty_folder / "ran").exists()


def test_a_cut_file_is_refused(in_empty_folder):
    written("a.safetensors")
    data = (in_empty_folder / "a.safetensors").read_bytes()
    (in_empty_folder / "b.safetensors").write_bytes(data[:-4])
    with pytest.raises(ValueError, match="is no intact safetensors file"):
        read_weights("b.safetensors")


def test_equal_names_that_hide_another_function(capsys):
    written("a.safetensors", "mindcv", model="resnet18")
    load_weights(create_model("resnet18", num_classes=3), "a.safetensors")
    assert "warning: a.safetensors: MindCV's stem max-pool pads with `same`" in capsys.readouterr().err
    written("b.safetensors", "official", model="resnet50")
    with pytest.raises(WeightsError, match="pad strided convolutions with `same` and have BatchNorm eps 1e-4"):
        read_weights("b.safetensors")


def test_command(capsys):
    written("a.safetensors", "torchvision")
    assert convert.main(["a.safetensors", "b.ckpt", "--to", "official"]) == 0
    # 9 convolutions, 9 BatchNorms of four, Dense weight and bias
    assert capsys.readouterr().out == ("resnet8: 47 tensors from torchvision names to official names in b.ckpt\n")
    assert "layer1.0.bn1d.gamma" in read_arrays("b.ckpt")
    with pytest.raises(ValueError, match=r"b\.txt: cannot be written; end its name in \.safetensors"):
        convert.main(["a.safetensors", "b.txt"])
