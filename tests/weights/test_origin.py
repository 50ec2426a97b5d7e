"""Which published net a file is, from its names, config and hash."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest

from resnet_fn import convert, recipes
from resnet_fn.models import MODELS, create_model
from resnet_fn.weights.load import load_weights, read_any_weights, read_start, read_weights
from resnet_fn.weights.origin import ANTIALIASED, timm_name
from resnet_fn.weights.recognise import WeightsError

pytestmark = pytest.mark.usefixtures("device")

TIMM = "compares with timm: pip install --no-deps timm pyyaml"


@pytest.fixture(scope="module")
def resnet18(written, tmp_path_factory):
    """A file of a ResNet-18 with torchvision's names. Not to be changed."""
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    written(path, "torchvision", model="resnet18")
    return path


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("resnetblur18.safetensors", None),
        ("ResNet_AA-50.safetensors", None),
        ("resnetblur18-84f4748f/model.safetensors", None),
        ("hub/model.safetensors", {"architecture": "resnetblur18"}),
        ("hub/model.safetensors", {"architecture": "resnet18", "model_args": {"aa_layer": "blur"}}),
        (
            "hub/resnet18.safetensors",
            {"architecture": "resnet18", "model_args": {"act_layer": "silu"}},
        ),
        (
            "hub/resnet18.safetensors",
            {"architecture": "resnet18", "model_args": {"output_stride": 8}},
        ),
        ("hub/resnet18.safetensors", {"architecture": "resnet18", "global_pool": "max"}),
    ],
)
def test_nets_that_compute_something_else_are_rejected(name, config, resnet18, raises_line):
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    shutil.copy(resnet18, name)
    if config:
        path.with_name("config.json").write_text(json.dumps(config))
    net = create_model("resnet8", num_classes=3)
    for load in (
        lambda: load_weights(net, name),
        lambda: read_start(recipes.finetune(weights=name)),
    ):
        with raises_line(name, "no net of this package", "give other weights", kind=WeightsError):
            load()
    with pytest.raises(WeightsError):
        convert.main([name, "a.safetensors"])
    assert read_any_weights(name).useless  # to look at


def test_weights_naming_a_plain_net_get_no_warning(written, resnet18, capsys):
    shutil.copy(resnet18, "net.safetensors")
    assert "resnetblur18" in read_weights("net.safetensors").warning  # nothing names the net
    load_weights(create_model("resnet18", num_classes=3), "net.safetensors")
    assert "warning: net.safetensors: " in capsys.readouterr().err
    config = {"architecture": "resnet18", "model_args": {"act_layer": "relu"}}
    Path("config.json").write_text(json.dumps(config))
    assert not read_weights("net.safetensors").warning
    Path("config.json").unlink()
    for name in ("resnet18-f37072fd.safetensors", "my_resnet18.safetensors"):
        Path("net.safetensors").rename(name)
        assert not read_weights(name).warning
        Path(name).rename("net.safetensors")
    written("own.safetensors", model="resnet18")  # this package's names are no file of timm
    assert not read_weights("own.safetensors").warning
    written("other.safetensors", "torchvision", model="resnet34")  # timm has no anti-aliased twin
    assert not read_weights("other.safetensors").warning


def test_a_folders_name_counts_if_nothing_else_does(resnet18, raises_line):
    folder = Path("resnetblur18-study/runs")
    folder.mkdir(parents=True)
    shutil.copy(resnet18, folder / "net.safetensors")
    read_weights(folder / "net.safetensors")
    Path(folder / "net.safetensors").rename("resnetblur18-study/net.safetensors")
    with raises_line("'resnetblur18-study'", "timm's resnetblur18", kind=WeightsError):
        read_weights("resnetblur18-study/net.safetensors")
    Path("resnetblur18-study/config.json").write_text('{"architecture": "resnet18"}')
    assert not read_weights("resnetblur18-study/net.safetensors").warning


def test_a_training_checkpoint_names_its_net(torch, written, raises_line):
    written("net.pth", "torchvision", model="resnet18")
    state = torch.load("net.pth", weights_only=True)
    torch.save({"epoch": 3, "arch": "resnetblur18", "state_dict": state}, "last.pth.tar")
    with raises_line("last.pth.tar", "timm's resnetblur18", "give other", kind=WeightsError):
        read_weights("last.pth.tar")
    torch.save({"epoch": 3, "arch": "resnet18", "state_dict": state}, "last.pth.tar")
    assert not read_weights("last.pth.tar").warning


@pytest.mark.slow
@pytest.mark.release  # timm's version is pinned
def test_timms_nets_with_equal_arrays_are_listed(torchvision):
    """All nets of timm's resnet.py. Of two that have the same arrays, one is the plain net."""
    timm = pytest.importorskip("timm", reason=TIMM)
    listed = set()
    known = {}
    for name in timm.list_models(module="resnet"):
        arrays = timm.create_model(name, device="meta").state_dict()
        known[name] = [(key, array.shape) for key, array in arrays.items()]
    for model, stem in itertools.product(MODELS, ("imagenet", "d")):
        names = ANTIALIASED.get((model, stem), "").split(" and ")
        listed |= {*names} - {""}
        plain = known.get(timm_name(model, stem))
        if plain:  # timm has no seresnet50d
            assert {name for name in known if known[name] == plain} == {
                timm_name(model, stem),
                *names,
            } - {""}
    assert listed == {name for name in known if re.fullmatch(r"(se)?resnet(aa|blur)\d+d?", name)}
