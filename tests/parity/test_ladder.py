import dataclasses
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import mindspore
import pytest
from mindspore import nn

from resnet_fn.models import create_model
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install 'resnet_fn[torch]'")

from resnet_fn.parity.ladder import compare_step, compressed_rates  # noqa: E402
from resnet_fn.parity.reference import reference_net  # noqa: E402
from resnet_fn.parity.report import name_map, table, write_json  # noqa: E402
from resnet_fn.parity.torch_run import prepare_reference  # noqa: E402
from resnet_fn.parity.trace import make_batches  # noqa: E402

RECIPE = dataclasses.replace(recipe("digits"), learning_rate=0.02)
pytestmark = pytest.mark.usefixtures("device")


def test_compressed_schedule_has_warm_up_peak_and_end():
    use = dataclasses.replace(recipe("digits"), epochs=10, warmup_epochs=4.0, learning_rate=1.0)
    assert compressed_rates(use, 5) == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.25])


@pytest.mark.slow
def test_resnet8_agrees_over_20_updates():
    torch.manual_seed(0)
    net, reference = create_model("resnet8", num_classes=10), reference_net("resnet8", num_classes=10)
    ladder = compare_step(net, reference, make_batches(20, 8, 3, 16, 10), RECIPE)
    assert ladder.agrees, table(ladder)
    worst = {stage.name: max(item.relative for item in stage.differences) for stage in ladder.stages}
    assert worst["eval forward"] < 1e-5
    assert worst["gradients"] < 1e-4
    assert worst["weights after update 5"] < 1e-4
    assert worst["loss trajectory"] < 1e-3
    assert worst["weights"] == 0
    assert {stage.verdict for stage in ladder.stages} == {"ok"}
    assert len(ladder.layers) == 2 * len({(layer.name) for layer in ladder.layers})
    assert ladder.notes == []


@pytest.mark.slow
def test_micro_batches_and_clipping_agree():
    torch.manual_seed(0)
    use = dataclasses.replace(RECIPE, clip_norm=0.5)
    net, reference = create_model("resnet8", num_classes=10), reference_net("resnet8", num_classes=10)
    ladder = compare_step(net, reference, make_batches(5, 8, 3, 16, 10), use, accumulate=2)
    assert ladder.agrees, table(ladder)
    norm = next(stage for stage in ladder.stages if stage.name == "gradient norm").differences[0]
    assert norm.ours > 0.5  # so that it did clip
    weights = next(stage for stage in ladder.stages if stage.name == "weights after update 5")
    assert max(item.relative for item in weights.differences) < 1e-4


class TorchNet(torch.nn.Module):
    """A residual block whose shortcut convolution has the shape of its last one, under names of its own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.inner = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.inner_norm = torch.nn.BatchNorm2d(8)
        self.skip = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8))
        self.pool = torch.nn.AdaptiveAvgPool2d(1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        out = self.inner_norm(self.inner(torch.relu(self.norm_again(x))))
        return self.head(self.pool(torch.relu(out + self.skip(x))).flatten(1))

    def norm_again(self, x):
        return x - 0.1


class Ported(nn.Cell):
    """The same; the shortcut is computed first, and nothing has its old name."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn_a = nn.BatchNorm2d(8)
        self.short = nn.SequentialCell(
            [nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(8)],
        )
        self.body = nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1)
        self.bn_b = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.classify = nn.Dense(8, 5)

    def construct(self, x):
        x = self.relu(self.bn_a(self.stem(x)))
        short = self.short(x)
        x = self.bn_b(self.body(self.relu(x - 0.1)))
        return self.classify(self.relu(x + short).mean((2, 3)))


@pytest.mark.slow
def test_names_are_worked_out_from_order_shapes_and_who_feeds_whom():
    torch.manual_seed(0)
    ladder = compare_step(
        Ported(), TorchNet(), make_batches(3, 8, 3, 12, 5), dataclasses.replace(RECIPE, clip_norm=0.0),
        initialisation=False,
    )  # fmt: skip
    assert ladder.names.how == "execution order and shapes"
    assert ladder.names.parameters["short.0.weight"] == "skip.0.weight"
    assert ladder.names.parameters["body.weight"] == "inner.weight"
    assert ladder.names.parameters["bn_b.moving_variance"] == "inner_norm.running_var"
    assert ladder.names.parameters["classify.bias"] == "head.bias"
    assert len(ladder.names.parameters) == 18
    assert ladder.agrees, table(ladder)
    assert re.search(r"^  stem\.weight +first\.weight$", name_map(ladder), re.MULTILINE)
    write_json(ladder, "ladder.json", [])
    assert json.loads(Path("ladder.json").read_text())["names"]["parameters"] == ladder.names.parameters


class WrongBetween(Ported):
    def construct(self, x):
        x = self.relu(self.bn_a(self.stem(x)))
        short = self.short(x)
        x = self.bn_b(self.body(self.relu(x - 0.2)))
        return self.classify(self.relu(x + short).mean((2, 3)))


@pytest.mark.slow
def test_a_function_between_layers_is_told_from_a_layer():
    torch.manual_seed(0)
    use = dataclasses.replace(RECIPE, clip_norm=0.0)
    ladder = compare_step(WrongBetween(), TorchNet(), make_batches(1, 8, 3, 12, 5), use, initialisation=False)
    assert ladder.first_stage.name == "eval forward"
    assert (ladder.first_layer.name, ladder.first_layer.theirs) == ("body", "inner")
    assert ladder.first_layer.hints == (
        "its input differs already and no earlier layer's output does: look at what happens between the layers (a "
        "function, a sum, a concatenation)",
    )
    assert ladder.notes == []


def test_a_missing_layer_and_a_wrong_shape_are_named():
    class Short(Ported):
        def __init__(self):
            super().__init__()
            self.classify = nn.Dense(8, 4)

    ladder = compare_step(Short(), TorchNet(), make_batches(1, 8, 3, 12, 4), RECIPE)
    assert ladder.first_stage.name == "weights"
    assert ladder.names.problems == (
        "classify weight [4, 8], bias [4] has no counterpart in the reference",
        "the reference's head weight [5, 8], bias [5] has no counterpart here",
    )


def test_fresh_statistics_are_drawn_and_trained_ones_kept():
    torch.manual_seed(0)
    net = TorchNet()
    net.inner_norm.running_mean += 3
    net.inner_norm.weight.data += torch.arange(8.0)
    gamma = net.inner_norm.weight.detach().clone()
    images = make_batches(1, 8, 3, 12, 5)[0][0]
    prepare_reference(net, images, 0)
    assert net.norm.running_mean.abs().min() > 0
    assert net.norm.weight.min() > 0.4
    assert net.norm.weight.unique().numel() == 8
    assert net.norm.momentum == 0.1
    assert torch.equal(net.inner_norm.weight, gamma)


def test_dropout_is_refused():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(432, 5))
    with pytest.raises(ValueError, match=r"^reference: 1 is Dropout with p=0.3, its masks are random; set p to 0"):
        prepare_reference(net, make_batches(1, 8, 3, 12, 5)[0][0], 0)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"^accumulate: 3 does not divide the batch of 8; give a divisor of 8$"):
        compare_step(Ported(), TorchNet(), make_batches(1, 8, 3, 12, 5), RECIPE, accumulate=3)


def parity(*flags, timeout=300):
    command = [sys.executable, "-m", "resnet_fn.parity", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def test_command_mistakes_are_one_line():
    done = parity("--net", "mine.py:build")
    assert (done.returncode, done.stderr) == (
        2,
        "parity: error: --net: needs --reference FILE:FUNCTION, the torch module that it was ported from\n",
    )
    done = parity("--reference", "nowhere.py:build")
    assert (done.returncode, done.stderr) == (
        2,
        "parity: error: --reference: there is no file nowhere.py; give FILE.py:FUNCTION\n",
    )


@pytest.mark.slow
def test_command_on_a_half_ported_net(tmp_path):
    (tmp_path / "theirs.py").write_text(
        textwrap.dedent("""
        import torch
        def build():
            return torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
        """)
    )
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        from mindspore import nn
        class Net(nn.Cell):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 8, 3, 2)
                self.bn = nn.BatchNorm2d(8)
                self.relu = nn.ReLU()
                self.fc = nn.Dense(8, 10)
            def construct(self, x):
                return self.fc(self.relu(self.bn(self.conv(x))).mean((2, 3)))
        """)
    )
    flags = ("--reference", "theirs.py:build", "--net", "mine.py:Net", "--image-size", "8", "--steps", "2")
    done = parity(*flags, "--no-initialisation", "--json", "ladder.json")
    assert done.returncode == 1, done.stderr
    assert "first layer that differs: conv (the reference's 0) in evaluation mode: " in done.stdout
    assert "  conv: pad_mode same pads 0/1, the reference 1/1\n" in done.stdout
    assert re.search(r"^  fc\.weight +5\.weight$", done.stdout, re.MULTILINE)
    saved = json.loads((tmp_path / "ladder.json").read_text())
    assert (saved["agrees"], saved["first_stage"], saved["first_layer"]) == (False, "eval forward", "conv")


@pytest.mark.slow
def test_figure(tmp_path):
    done = parity("--image-size", "16", "--steps", "1", "--figure", "layers.png")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_resnet50_ladder_at_64_pixels():
    mindspore.set_seed(1)
    done = parity("--model", "resnet50", "--image-size", "64", "--batch-size", "4", "--steps", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: both compute the same" in done.stdout
