"""The net in files as training scripts leave them: PyTorch writes each project's keys and names."""

import argparse
import contextlib
import dataclasses

import numpy as np
import pytest

from resnet_fn.weights.files import read_arrays, write_arrays
from resnet_fn.weights.load import read_any_weights, read_weights
from resnet_fn.weights.recognise import WeightsError, recognise_model

torch = pytest.importorskip("torch", reason="torch.save writes the files")
pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def weights():
    """A ResNet-8's state dict, with 5 classes."""
    from resnet_fn.parity.reference.nets import reference_net

    return reference_net("resnet8", num_classes=5).state_dict()


@dataclasses.dataclass
class Given:
    """What a file is made of: the weights, their average, the weights without the last layer."""

    weights: dict
    average: dict
    body: dict

    def named(self, prefix, part="weights"):
        return {f"{prefix}{name}": tensor for name, tensor in getattr(self, part).items()}

    def numbered(self, prefix, factor=1):
        """As nn.Sequential(*net.children()) of torchvision's net has them."""
        numbers = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6}
        renamed = {}
        for name, tensor in self.body.items():
            child, _, rest = name.partition(".")
            renamed[f"{prefix}{numbers[child]}.{rest}"] = tensor * factor
        return renamed

    def head(self, prefix):
        return {f"{prefix}{leaf}": self.weights[f"fc.{leaf}"] for leaf in ("weight", "bias")}


@pytest.fixture(scope="module")
def given(weights):
    average = {name: x * 2 if x.is_floating_point() else x for name, x in weights.items()}
    body = {name: x for name, x in weights.items() if not name.startswith("fc.")}
    return Given(weights, average, body)


ARGS = argparse.Namespace(model="resnet8")
OPTIMIZER = {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}
_LAYERS = (torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
MLP = torch.nn.Sequential(*_LAYERS).state_dict()


def with_mlp(given, prefix, head):
    layers = {f"{head}{name}": tensor for name, tensor in MLP.items()}
    return {**given.named(prefix, "body"), **layers}


# Of each kind of file: its contents; which part of `Given` is read; parts of the notes.
KINDS = {
    "timm": (
        lambda g: {
            **{"epoch": 3, "arch": "resnet8", "state_dict": g.weights, "optimizer": OPTIMIZER},
            **{"version": 2, "args": ARGS, "amp_scaler": {"scale": 1.0}, "metric": 71.5},
            "state_dict_ema": g.average,
        },
        "average",
        ["'state_dict_ema/', the average of the weights, is read; left out: 'state_dict/'"],
    ),
    "torchvision with an average": (
        lambda g: {
            **{"model": g.weights, "optimizer": OPTIMIZER, "lr_scheduler": {}, "epoch": 1},
            **{"args": ARGS, "scaler": {}},
            "model_ema": {"n_averaged": torch.tensor(3), **g.named("module.", "average")},
        },
        "average",
        ["'model_ema/module.', the average of the weights, is read; left out: 'model/'"],
    ),
    "an average without statistics": (
        lambda g: {
            "model": g.weights,
            "ema": {name: x for name, x in g.average.items() if "running" not in name},
        },
        None,
        ["the average has no bn1.running_mean", "which are read from 'model/'"],
    ),
    "Lightning": (
        lambda g: {
            **{"pytorch-lightning_version": "2.5.0", "hyper_parameters": {"net": ARGS}},
            "state_dict": {**g.named("model."), "loss.weight": torch.ones(5)},
        },
        "weights",
        ["stripped from all names: 'model.'", "left out: loss.weight"],
    ),
    "Lightning with an average": (
        lambda g: {"state_dict": {**g.named("net."), **g.named("ema.module.", "average")}},
        "average",
        ["'state_dict/ema.module.'"],
    ),
    "Lightning with a head of its own": (
        lambda g: {"state_dict": {**g.named("backbone.", "body"), **g.head("classifier.")}},
        "weights",
        ["'backbone.'", "classifier is read as the last layer fc"],
    ),
    "torch.compile and DistributedDataParallel": (
        lambda g: g.named("_orig_mod.module."),
        "weights",
        ["'_orig_mod.module.'"],
    ),
    "AveragedModel": (
        lambda g: {"n_averaged": torch.tensor(9), **g.named("module.", "average")},
        "average",
        [],
    ),
    "kuangliu's pytorch-cifar": (
        lambda g: {
            **{"acc": 93.1, "epoch": 9},
            "net": {
                f"module.{name.replace('downsample', 'shortcut').replace('fc.', 'linear.')}": tensor
                for name, tensor in g.weights.items()
            },
        },
        "weights",
        ["'module.'", "module.linear is read as the last layer fc"],
    ),
    "Sequential head": (
        lambda g: {**g.body, **g.head("fc.1.")},
        "weights",
        ["fc.1 is read as the last layer fc"],
    ),
    "MoCo": (
        lambda g: {
            "state_dict": {
                **with_mlp(g, "module.encoder_q.", "module.encoder_q.fc."),
                **with_mlp(g, "module.encoder_k.", "module.encoder_k.fc."),
                **{"module.queue": torch.ones(8, 4), "module.queue_ptr": torch.zeros(1)},
            }
        },
        "body",
        ["'state_dict/module.encoder_q.' is read", "left out: module.queue, module.queue_ptr"],
    ),
    "SimSiam": (
        lambda g: {"state_dict": with_mlp(g, "module.encoder.", "module.predictor.")},
        "body",
        ["'module.encoder.'", "left out: module.predictor.0.bias"],
    ),
    "DINO": (
        lambda g: {
            "student": with_mlp(g, "module.backbone.", "module.head.mlp."),
            "teacher": with_mlp(g, "backbone.", "head.mlp."),
            "dino_loss": {"center": torch.zeros(1, 8)},
        },
        "body",
        ["'teacher/backbone.', the average of the weights"],
    ),
    "BYOL": (
        lambda g: {**g.named("online_net.", "body"), **g.named("target_net.", "body")},
        "body",
        ["'online_net.' is read; left out: 'target_net.'"],
    ),
    "solo-learn": (
        lambda g: {
            "state_dict": {
                **with_mlp(g, "backbone.", "projector."),
                **g.named("momentum_backbone.", "body"),
                **g.head("classifier."),
            }
        },
        "weights",
        ["'state_dict/backbone.' is read", "left out: projector.0.bias"],
    ),
    "lightly": (
        lambda g: {
            "state_dict": {**g.numbered("backbone."), **g.numbered("backbone_momentum.", factor=3)},
        },
        "body",
        ["'state_dict/backbone.' is read", "are read as conv1, bn1, layer1, layer2"],
    ),
    "MMPretrain": (
        lambda g: {"state_dict": {**g.named("backbone.", "body"), **g.head("head.fc.")}},
        "weights",
        ["'backbone.'", "head.fc is read as the last layer fc"],
    ),
    # Its hook exchanges the two before it saves (mmengine, hooks/ema_hook.py).
    "MMEngine with an average": (
        lambda g: {
            **{"meta": {}, "message_hub": {}, "state_dict": g.named("backbone.", "average")},
            "ema_state_dict": {"steps": torch.tensor(3), **g.named("module.backbone.")},
        },
        "average",
        ["the average of the weights"],
    ),
    # Its callback exchanges the two, too (lightning, callbacks/weight_averaging.py).
    "Lightning's WeightAveraging": (
        lambda g: {
            **{"pytorch-lightning_version": "2.6.0", "state_dict": g.named("net.", "average")},
            "current_model_state": g.named("net."),
            "averaging_state": {"n_averaged": torch.tensor(9)},
        },
        "average",
        ["the average of the weights"],
    ),
    "one state dict under two keys": (
        lambda g: {"state_dict": g.weights, "model": g.weights},
        "weights",
        [],
    ),
    "two state dicts of one net": (
        lambda g: {"state_dict": g.weights, "model": dict(g.weights)},
        "weights",
        [],
    ),
    "MoCo's momentum encoder alone": (
        lambda g: {"state_dict": g.named("momentum_encoder.")},
        "weights",
        ["'momentum_encoder.'"],
    ),
    "detection": (
        lambda g: {
            "model": {**g.named("backbone.body.", "body"), "rpn.head.weight": torch.ones(3, 3)},
        },
        "body",
        ["'backbone.body.'", "left out: rpn.head.weight"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_net_is_found_and_other_entries_named(kind, given):
    make, expected, parts = KINDS[kind]
    torch.save(make(given), "last.pth.tar")
    source = read_weights("last.pth.tar")
    assert recognise_model(source.arrays)["name"] == "resnet8"
    assert source.averaged == (expected == "average" or "average of" in "".join(source.notes))
    assert [part for part in parts if part not in "\n".join(source.notes)] == []
    if expected:
        read = read_arrays("last.pth.tar").arrays
        for name, tensor in getattr(given, expected).items():
            assert read[name].tobytes() == tensor.numpy().tobytes(), name
        head = {name for name in read if name.startswith("fc.")}
        assert expected == "body" or head == {"fc.weight", "fc.bias"}


def test_prefixes_and_averages_are_seen_in_every_format(given, tmp_path):
    arrays = {name: tensor.numpy() for name, tensor in given.named("encoder.").items()}
    arrays |= {name: tensor.numpy() for name, tensor in given.named("ema.", "average").items()}
    for ending in ("safetensors", "ckpt", "pth"):
        write_arrays(f"a.{ending}", arrays)
        source = read_weights(f"a.{ending}")
        assert source.averaged
        assert "'ema.', the average of the weights, is read" in source.notes[0]


def test_a_file_of_two_nets_is_rejected(given, raises_line):
    """One that trained on the other's outputs, or an average of another net."""
    torch.save({"state_dict": {**given.named("student."), **given.named("teacher.")}}, "a.ckpt")
    other = {**given.average, "conv1.weight": given.average["conv1.weight"][:2]}
    torch.save({"model": given.weights, "ema": other}, "c.pth")
    torch.save({"student": given.weights, "teacher": given.average}, "d.pth")
    nets = {
        "a.ckpt": ("state_dict/student.", "state_dict/teacher."),
        "c.pth": ("model/", "ema/"),
        "d.pth": ("student/", "teacher/"),
    }
    for file, (first, second) in nets.items():
        words = (f"{file}: contains 2 nets ({first!r}, {second!r})", "save", "one of them")
        with raises_line(*words, kind=WeightsError):
            read_weights(file)
        assert f"{first}fc.bias" in read_any_weights(file).arrays  # to look at


def test_names_of_transformers_are_rejected_with_words(raises_line):
    names = ("resnet.embedder.embedder.convolution.weight", "classifier.1.weight")
    torch.save({name: torch.ones(3, 3) for name in names}, "pytorch_model.bin")
    with raises_line("pytorch_model.bin: ", "transformers", "timm", kind=WeightsError):
        read_weights("pytorch_model.bin")


def test_a_number_as_weight_raises_only_value_errors(given):
    for name in given.weights:
        torch.save({**given.weights, name: torch.tensor(1.0)}, "a.pth")
        with contextlib.suppress(ValueError):
            start = read_any_weights("a.pth").arrays
            recognise_model(start)
    torch.save({**given.body, "layer3.0.conv2.weight": torch.tensor(1.0)}, "a.pth")
    with pytest.raises(WeightsError, match="conv"):
        recognise_model(read_any_weights("a.pth").arrays | {"layer1.0.conv2.weight": np.ones(())})


def test_of_other_nets_the_average_is_read():
    """Without what compiled and parallel nets put before names."""
    layers = {"0.weight": torch.ones(3, 2), "0.bias": torch.zeros(3)}
    average = {f"_orig_mod.module.{name}": tensor + 1 for name, tensor in layers.items()}
    contents = {"state_dict": layers, "optimizer": OPTIMIZER, "state_dict_ema": average}
    torch.save(contents, "a.pth")
    source = read_any_weights("a.pth")
    assert source.averaged
    assert "'state_dict_ema/_orig_mod.module.', the average" in source.notes[0]
    assert "left out: 'state_dict/'" in source.notes[0]
    assert source.arrays["0.bias"].tolist() == [1, 1, 1]


def test_an_object_among_arrays_is_named(given):
    torch.save({**given.weights, "scale": argparse.Namespace()}, "a.pth")
    assert read_arrays("a.pth").notes == ("not read, because they are no arrays: scale",)


@pytest.mark.slow
def test_files_of_timms_saver_are_read(torchvision, tmp_path):
    """By timm's own code: its checkpoint, and its average."""
    pytest.importorskip("timm", reason="pip install --no-deps timm")
    import timm.utils

    net = torchvision.models.resnet18(num_classes=3)
    average = timm.utils.ModelEmaV3(net, decay=0.5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    average.update(net)
    args = argparse.Namespace(model="resnet18")
    folders = {"checkpoint_dir": ".", "recovery_dir": "."}
    saver = timm.utils.CheckpointSaver(net, optimizer, args, average, **folders)
    saver.save_checkpoint(0, metric=1.0)
    read = read_arrays("last.pth.tar")
    assert read.averaged
    for name, tensor in average.module.state_dict().items():
        np.testing.assert_array_equal(read.arrays[name], tensor.numpy())
