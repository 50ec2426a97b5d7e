"""Converted weights compute what the originals do."""

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn import convert
from resnet_fn.config.recipe import Recipe
from resnet_fn.models import create_model
from resnet_fn.weights import names
from resnet_fn.weights.files import read_arrays
from resnet_fn.weights.load import convert_weights, load_weights, name_model, read_weights

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("style", names.STYLES)
def test_round_trip_is_byte_identical(style, in_empty_folder, written):
    written("a.safetensors")
    assert convert_weights("a.safetensors", "b.ckpt", style)["from"] == "ours"
    assert convert_weights("b.ckpt", "c.safetensors")["from"] == style
    assert (in_empty_folder / "c.safetensors").read_bytes() == (
        in_empty_folder / "a.safetensors"
    ).read_bytes()


def test_torch_loads_our_files_and_computes_the_same(torch, written):
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
    # PyTorch's own file: BatchNorm counters are dropped, a wrapper and DataParallel's prefix are
    # seen through.
    torch.save(
        {"state_dict": {f"module.{key}": value for key, value in ref.state_dict().items()}}, "b.pth"
    )
    convert_weights("b.pth", "b.safetensors")
    assert set(read_arrays("b.safetensors").arrays) == set(ours)


def test_the_command_writes_the_chosen_names(capsys, written):
    written("a.safetensors", "torchvision")
    assert convert.main(["a.safetensors", "b.ckpt", "--to", "official"]) == 0
    # 9 convolutions, 9 BatchNorms of four, Dense weight and bias
    assert capsys.readouterr().out == (
        "resnet8: 47 tensors from torchvision names to official names in b.ckpt, read from "
        "a.safetensors\n"
    )
    assert "layer1.0.bn1d.gamma" in read_arrays("b.ckpt").arrays
    with pytest.raises(
        ValueError, match=r"b\.txt cannot be written as weights; .* ends in \.safetensors"
    ):
        convert.main(["a.safetensors", "b.txt"])


@pytest.mark.slow
def test_two_nets_with_equal_parameters_are_warned_of(save_run, capsys):
    """A bare file does not say which of two models it is of; a checkpoint of ours does, and then it
    is a fact.
    """
    net = create_model("genet50_minus", num_classes=2, initialisation="he_uniform")
    save_run(1, list(net.get_parameters()), model="genet50_minus")
    known = convert_weights("run", "a.safetensors")
    assert (known["model"], known["warnings"]) == ("genet50_minus", [])
    unsure = (
        "resnet50 and genet50_minus have the same parameters; these weights are read as resnet50, "
        "so "
        "give --model NAME for another model"
    )
    assert convert_weights("a.safetensors", "b.safetensors")["warnings"] == [unsure]
    assert (
        convert_weights("a.safetensors", "b.safetensors", model="genet50_minus")["warnings"] == []
    )
    load_weights(net, "run")
    assert name_model(Recipe(model=""), read_weights("run"))[0].model == "genet50_minus"
    assert capsys.readouterr().err == ""
    load_weights(net, "a.safetensors")
    assert name_model(Recipe(model=""), read_weights("a.safetensors"))[0].model == "resnet50"
    load_weights(create_model("resnet50", num_classes=2, initialisation="he_uniform"), "run")
    no_gates = "but this net lacks the gates, which have no parameters"
    assert capsys.readouterr().err.splitlines() == [
        "warning: a.safetensors: these weights may be of resnet50, but this net has the gates of "
        "genet50_minus, "
        "which have no parameters",
        f"warning: a.safetensors: {unsure}",
        f"warning: run/checkpoints/step-00000001: these weights are of genet50_minus, {no_gates}",
    ]
