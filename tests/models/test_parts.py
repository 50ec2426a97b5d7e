"""Names and patterns of parts, and what freezing takes from a net.

(Mistakes: tests/test_mistakes.py.)
"""

import re
from pathlib import Path

import pytest
from mindspore import nn

from resnet_fn.models import create_model
from resnet_fn.models.parts import freeze, select

FINETUNING = Path(__file__).parents[2] / "docs/finetuning.md"
pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def net():
    return create_model("resnet8", num_classes=3)


def trained(net):
    return [parameter.name for parameter in net.trainable_params()]


def frozen_norms(net):
    return [
        name
        for name, cell in net.cells_and_names()
        if getattr(cell, "use_batch_statistics", None) is False
    ]


def test_parts_are_selected_by_name_group_or_pattern(net):
    paths = trained(net)
    for names, pattern in (
        ("stem", "(conv1|bn1).*"),
        ("layer1", "layer1.*"),
        ("layer1.0.conv1, fc.bias", "layer1.0.conv1.weight|fc.bias"),
        ("*.bn?,bn1", ".*bn.*"),
        ("layer[12]", "layer[12].*"),
    ):
        expected = {path for path in paths if re.fullmatch(pattern, path)}
        assert select(paths, names, "freeze") == expected


@pytest.mark.parametrize(
    "design",
    [{"name": "resnet8"}, {"name": "resnet18", "stem": "d"}, {"name": "genet50_plus"}],
    ids=lambda design: design["name"],
)
def test_the_patterns_of_the_documentation_freeze_every_batchnorm(design):
    net = create_model(**design, num_classes=3, image_size=32)
    (patterns,) = re.findall(r"patterns `(.+?)` match", FINETUNING.read_text(encoding="utf-8"))
    freeze(net, patterns)
    assert not [name for name in trained(net) if name.endswith(("gamma", "beta"))]
    assert len(frozen_norms(net)) == sum(
        isinstance(cell, nn.BatchNorm2d) for _, cell in net.cells_and_names()
    )


def test_a_partly_trained_batchnorm_is_not_frozen(net):
    freeze(net, "bn1.gamma,layer1.0.bn1")
    assert frozen_norms(net) == ["layer1.0.bn1"]


def test_train_only_freezes_all_other_parts(net):
    freeze(net, trained="fc,layer3.0.bn2")
    assert trained(net) == ["layer3.0.bn2.gamma", "layer3.0.bn2.beta", "fc.weight", "fc.bias"]
    assert "layer3.0.bn2" not in frozen_norms(net)
    assert len(frozen_norms(net)) == 8
