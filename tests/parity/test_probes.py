"""What the batches do not show: probes of layers and of the net, and lines about what was not exercised."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.__main__ import main
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.mindspore_side import Like, record_net
from resnet_fn.parity.probes import compare_probes
from resnet_fn.parity.replay import compare_step, names_of, replay
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Probe, Task
from resnet_fn.parity.trace_folder import load_recording, save_recording
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
from resnet_fn.parity.torch_side import record_reference  # noqa: E402  (imports torch)

t, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

SGD = dataclasses.replace(recipe("digits"), learning_rate=0.02)
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


class Theirs(t.Module):
    def __init__(self, function: Any, *layers: Any) -> None:
        super().__init__()
        self.body, self.head, self.function = t.ModuleList(layers), t.Linear(8, 3), function

    def forward(self, *inputs: Any) -> Any:
        return self.head(self.function(*self.body, *inputs))


class Ours(nn.Cell):
    def __init__(self, function: Any, *layers: nn.Cell) -> None:
        super().__init__()
        self.body, self.head, self.function = nn.CellList([*layers]), nn.Dense(8, 3), function

    def construct(self, *inputs: Tensor) -> Tensor:
        return self.head(self.function(*self.body, *inputs))


def apply(layer: Any, x: Any) -> Any:
    return layer(x)


def bare(x: Any) -> Any:
    return x


def inputs_of(name: str) -> Any:
    positive = np.abs(draw(4, 8)) + 0.1
    square = draw(4, 8, 8)
    return {
        "positive": positive,
        "small": np.clip(draw(4, 8), -0.9, 0.9),
        "images": draw(4, 8, 6, 6),
        "ids": np.array([[1, 2, 3], [3, 2, 1]] * 2),
        "mask": (draw(4, 5, 8), np.ones((4, 5), bool)),
        "sequences": draw(4, 4, 8),
        "symmetric": square + square.swapaxes(1, 2),
        "vectors": draw(4, 8),
    }[name]


def their_masked(x: Any, mask: Any) -> Any:
    return (x * mask[..., None]).sum(1)


def our_masked(x: Any, mask: Any) -> Any:
    return x.sum(1)


def their_buckets(table: Any, x: Any) -> Any:
    return (x + table(torch.arange(x.shape[1]).clamp(max=5))).mean(1)


def our_buckets(table: Any, x: Any) -> Any:
    return (x + table(ops.minimum(ops.arange(x.shape[1]), Tensor(6)))).mean(1)


def our_squeeze(x: Any) -> Any:
    y = x.expand_dims(1).squeeze()
    return y


def their_clamp(x: Any) -> Any:
    return x / x.norm(dim=1, keepdim=True).clamp(min=1e-6)


def our_clamp(x: Any) -> Any:
    return x / ops.maximum(ops.norm(x, dim=1, keepdim=True), Tensor(1e-3))


def their_first(table: Any, ids: Any) -> Any:
    return table(ids).mean(1)


def our_first(table: Any, ids: Any) -> Any:
    return table(ops.minimum(ids, Tensor(5))).mean(1)


# what differs: inputs, reference, port, what a finding or a line must contain
KINDS = {
    "ReLU for LeakyReLU": ("positive", (apply, t.LeakyReLU(0.1)), (apply, nn.ReLU()), ["−x", "`body.0`"]),
    "an upper limit": ("small", (apply, t.ReLU6()), (apply, nn.ReLU()), ["10·x", "`body.0`"]),
    "a higher limit": ("small", (apply, t.Hardtanh(-90, 90)), (apply, nn.Hardtanh(-99.0, 99.0)), ["above 90"]),
    "odd sizes": (
        "images",
        (lambda pool, x: pool(x).mean((2, 3)), t.MaxPool2d(2, ceil_mode=True)),
        (lambda pool, x: pool(x).mean((2, 3)), nn.MaxPool2d(2, 2)),
        ["sizes − 1", "the outputs", "`body.0`", "ceil_mode False here, True in the reference"],
    ),
    "ids": ("ids", (their_first, t.Embedding(9, 8)), (our_first, nn.Embedding(9, 8)), ["every id once", "the outputs"]),
    "a mask that hides nothing": ("mask", (their_masked,), (our_masked,), ["masks inverted", "the outputs"]),
    "buckets": ("sequences", (their_buckets, t.Embedding(9, 8)), (our_buckets, nn.Embedding(9, 8)), ["sizes × 2"]),
    "a symmetric matrix": (
        "symmetric", (lambda x: x.sum(1) * 0 + x[:, 1],), (lambda x: x[:, :, 1],), ["inputs: always symmetric"]
    ),
    "squeeze": ("vectors", (bare,), (our_squeeze,), ["one sample", "the outputs"]),
    "a clamp of a norm": ("vectors", (their_clamp,), (our_clamp,), ["test_probes.py", "nothing below 1e-06"]),
    "eps beside large variances": (
        "vectors", (apply, t.LayerNorm(8, eps=1e-8)), (apply, nn.LayerNorm((8,), epsilon=2e-7)), ["0.01·x", "`body.0`"]
    ),
    "labels": ("vectors", (bare,), (bare,), ["labels: no 2 of 3 classes"]),
    "no clipping": ("vectors", (bare,), (bare,), ["clipping: it acts in 0 of 1 updates"]),
    "a layer that is never called": (
        "vectors", (lambda a, b, x: a(x), t.Linear(8, 8), t.Linear(8, 8)),
        (lambda a, b, x: a(x), nn.Dense(8, 8), nn.Dense(8, 8)), ["never called: body.1", "without gradient: body.1"],
    ),
}  # fmt: skip


def compared(inputs: Any, theirs: Any, ours: Any, **options: Any) -> Ladder:
    torch.manual_seed(0)
    use = dataclasses.replace(SGD, clip_norm=1e6)
    batches = [(inputs, np.array([0, 1, 0, 1], np.int32))]
    return compare_step(Ours(*ours), Theirs(*theirs), batches, use, initialisation=False, mode="pynative", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_batches_do_not_show_has_a_finding_or_a_line(kind):
    inputs, theirs, ours, words = KINDS[kind]
    ladder = compared(inputs_of(inputs), theirs, ours)
    assert ladder.agrees, table(ladder)
    lines = [*ladder.probed.lines(), *ladder.coverage.not_exercised]
    for word in words:
        assert any(word in line for line in lines), lines


def test_the_verdict_names_what_was_compared():
    ladder = compared(draw(4, 8), (apply, t.ReLU()), (apply, nn.ReLU()))
    (line,) = [line for line in table(ladder).splitlines() if line.startswith("verdict: ")]
    assert "for 1 batch of [4, 8] and " in line
    assert line.endswith("; 2 of 2 layers compared")
    assert not ladder.probed.findings
    assert {"0.01·x", "−x", "10·x", "one sample"} == set(ladder.probed.agreed["body.0"])
    quick = compared(draw(4, 8), (apply, t.ReLU()), (apply, nn.ReLU()), quick=True)
    assert "and 0 probes" in table(quick)
    assert "other inputs: there are no probes" in table(quick)


def test_all_arguments_of_a_layer_are_kept_and_integers_are_not_scaled():
    class Scaled(t.Module):
        def forward(self, x, *, times, count):
            return x * times + count

    class PortedScaled(nn.Cell):
        def construct(self, x, *, times, count):
            return ops.relu(x) * times + count

    def call(layer, x):
        return layer(x, times=x.mean(), count=3)

    ladder = compared(np.abs(draw(4, 8)), (call, Scaled()), (call, PortedScaled()))
    assert ladder.agrees
    finding = next(one for one in ladder.probed.findings if one.layer == "body.0")
    assert finding.probe == "−x"
    assert finding.difference.ours == pytest.approx(3)


def test_arguments_of_one_size_are_cropped_together():
    """Torch's weight norm reads beyond g, the shorter one, and ends the process some time later."""
    conv = t.utils.parametrizations.weight_norm(t.Conv1d(32, 32, 16, padding=8, groups=4), dim=2)
    theirs = Theirs(lambda layer, x: layer(x)[..., :8].mean(1), conv)
    recorded = record_reference(theirs, Task(SGD, [(draw(4, 32, 12), np.array([0, 1, 2, 0], np.int32))]))
    (name,) = [name for name in recorded.probes if "parametrizations" in name]
    assert recorded.probes[name]["cropped by one along axis 2"].outputs["output"].shape == (32, 8, 15)


def test_kernels_of_mindspore_are_named_and_not_accused():
    ladder = compared(draw(4, 8), (apply, t.Tanh()), (apply, nn.Tanh()))
    assert not ladder.probed.findings
    assert any("body.0" in line and "10·x" in line for line in ladder.probed.kernels)


def test_a_trace_has_the_answers(tmp_path, capsys):
    task = Task(SGD, [(np.abs(draw(4, 8)), np.array([0, 1, 2, 0], np.int32))])
    save_recording(record_reference(Theirs(apply, t.LeakyReLU(0.1)), task), tmp_path / "theirs")
    theirs, net = load_recording(tmp_path / "theirs"), Ours(apply, nn.ReLU())
    names = names_of(net, theirs)
    save_recording(record_net(net, theirs.task, like=Like(theirs, names)), tmp_path / "ours")
    ours = load_recording(tmp_path / "ours")
    found = [(one.layer, one.probe) for one in replay(theirs, net, initialisation=False).probed.findings]
    assert found == [("body.0", "−x"), ("", "−x")]
    assert found == [(one.layer, one.probe) for one in compare_probes(ours, theirs, names.layers, True).findings]

    command = ["compare", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--no-initialisation"]
    assert main([*command, "--json", str(tmp_path / "ladder.json")]) == 0
    assert "on your batches the same; with −x: `body.0` differs" in capsys.readouterr().out
    read = json.loads((tmp_path / "ladder.json").read_text())
    assert {one["layer"] for one in read["probes"]} == {"", "body.0"}
    assert read["coverage"]["layers compared"] == 2
    assert main([*command, "--strict"]) == 1
    assert main([*command, "--strict", "--quick"]) == 0

    # What one side lacks or the reference rejects is no agreement; what ours alone rejects is a finding.
    del ours.probes[""]["10·x"]
    ours.probes[""]["0·x"] = Probe({}, "ValueError: no", further=ours.probes[""]["0·x"].further)
    theirs.probes[""]["−x"] = Probe({}, "ValueError: no")
    probed = compare_probes(ours, theirs, names.layers, True)
    assert [(one.probe, "ValueError: no" in one.words) for one in probed.findings if not one.layer] == [("0·x", True)]
    assert {"10·x", "−x"} < probed.left_out.keys()


def test_rounding_that_cannot_be_measured_leaves_findings_by_tolerance(tmp_path):
    def fails(asked: Any) -> None:
        raise RuntimeError("no float64")

    theirs = record_reference(Theirs(apply, t.LeakyReLU(0.1)), Task(SGD, [(np.abs(draw(4, 8)), np.zeros(4, np.int32))]))
    theirs.measure_probes = fails
    ladder = replay(theirs, Ours(apply, nn.ReLU()), initialisation=False, mode="pynative")
    assert [one.layer for one in ladder.probed.findings] == ["body.0", ""]
    assert "measuring it failed (RuntimeError: no float64)" in ladder.probed.left_out["the rounding of probes"]
    save_recording(theirs, tmp_path / "theirs")
    saved = load_recording(tmp_path / "theirs")
    assert saved.probes == {}
    assert "cannot be measured (RuntimeError: no float64): the trace has none" in saved.notes[-1]


class Counts(t.Module):
    """It keeps what it was given, and refuses all after another batch than the first."""

    def forward(self, x: Any) -> Any:
        self.first = getattr(self, "first", len(x))
        self.other = getattr(self, "other", False) or len(x) != self.first
        if self.other:
            raise ValueError("another batch")
        return x


class PortedCounts(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.most, self.sizes = 0, []

    def construct(self, x: Tensor) -> Tensor:
        self.most = max(self.most, len(x))
        self.sizes = [*self.sizes, len(x)]
        return x


def test_probes_that_fail_cost_the_probes_and_not_the_verdict():
    ladder = compared(draw(4, 8), (apply, Counts()), (apply, nn.Identity()))
    assert ladder.agrees, table(ladder)
    assert "the probes of PyTorch failed (ValueError: another batch): there are none" in table(ladder)
    assert "and 0 probes" in table(ladder)


def test_what_probes_change_of_a_cell_is_put_back():
    cell = PortedCounts()
    ladder = compared(draw(4, 8), (apply, t.Identity()), (apply, cell))
    assert ladder.probed.agreed["body.0"]
    assert cell.most == 4
    assert {*cell.sizes} == {4}


def test_large_images_are_probed_a_few_at_a_time():
    images, labels = draw(3, 3, 224, 224), np.array([0, 1, 2], np.int32)

    def pooled(x: Any) -> Any:
        return x[:, :, ::28, 0].mean(1)

    def looked_up(layer: Any, table: Any, images: Any, ids: Any) -> Any:
        return pooled(layer(images)) + table(ids).mean(1)

    ids, module = np.arange(9).reshape(3, 3) % 6, Theirs(looked_up, t.ReLU(), t.Embedding(6, 8))
    recorded = record_reference(module, Task(SGD, [((images, ids), labels)]))
    assert recorded.probes["body.0"]["−x"].outputs["output"].shape == (1, 3, 224, 224)
    assert recorded.probes[""]["n + 1 samples"].outputs["logits"].shape == (3, 3)
    assert "every id once (inputs 1)" in recorded.probes[""]
    port = (lambda layer, x: pooled(layer(x)).reshape(4, 8), nn.ReLU())  # it takes no single sample
    ladder = compared(draw(4, 3, 224, 224), (lambda layer, x: pooled(layer(x)), t.ReLU()), port)
    assert {one.layer for one in ladder.probed.findings} == {""}
