"""Names of other projects' parameters, there and back."""

import numpy as np

from resnet_fn.models.resnet import Bottleneck, Design, ResNet
from resnet_fn.weights.names import (
    STYLES,
    differences,
    is_basic,
    recognise_style,
    rename,
    strip_extras,
    to_ours,
)


def test_each_style_has_its_names_of_parameters():
    table = {
        "bn1.gamma": ("bn1.weight", "bn1.gamma", "bn1.gamma"),
        "bn1.moving_variance": ("bn1.running_var", "bn1.moving_variance", "bn1.moving_variance"),
        "layer1.0.bn1.beta": ("layer1.0.bn1.bias", "layer1.0.bn1.beta", "layer1.0.bn1d.beta"),
        "layer2.0.downsample.0.weight": (
            "layer2.0.downsample.0.weight",
            "layer2.0.down_sample.0.weight",
            "layer2.0.down_sample_layer.0.weight",
        ),
        "fc.bias": ("fc.bias", "classifier.bias", "end_point.bias"),
    }
    for ours, others in table.items():
        assert tuple(rename(ours, style, basic=True) for style in STYLES) == (ours, *others)
    assert rename("layer1.0.bn1.beta", "official", basic=False) == "layer1.0.bn1.beta"


def test_renaming_there_and_back_changes_nothing(device):
    design = Design(Bottleneck, (2, 1), (8, 16), attention="ge-plus")
    ours = [parameter.name for parameter in ResNet(design, 3, image_size=32).get_parameters()]
    for style in STYLES:
        theirs = [rename(name, style, is_basic(ours)) for name in ours]
        assert len(set(theirs)) == len(ours)
        assert recognise_style(theirs) == style
        assert list(to_ours(theirs, style).values()) == ours


def test_counters_and_optimizer_arrays_are_left_out():
    kept = ["conv1.weight", "momentum_conv.weight"]
    extras = [
        "bn1.num_batches_tracked",
        "momentum.conv1.weight",
        "adam_v.fc.bias",
        "global_step",
        "scale_sense",
    ]
    assert strip_extras([*kept, *extras]) == kept


def test_differences_behind_equal_names_are_described():
    def of(*names, kernel=7):
        arrays = {name: np.zeros(1, np.float32) for name in names}
        return {**arrays, "conv1.weight": np.zeros((64, 3, kernel, kernel), np.float32)}

    # With a max-pool, and with bottlenecks: test_load.py.
    assert differences("mindcv", of(kernel=3)) == ("", False)
    assert differences("official", of("layer1.0.conv2.weight")) == ("", False)
    both = of("layer1.0.se.gather.conv1.weight", "layer1.0.se.mlp.fc1.weight")
    assert differences("torchvision", both)[0].startswith("timm's gather-excite has no ReLU")
    assert differences("torchvision", of("layer1.0.se.mlp.fc1.weight")) == ("", False)
