"""What the batches do not show: probes of layers and of the net, and lines about what was not
exercised.
"""

import json

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.__main__ import main
from resnet_fn.parity.compare.labels import lines_of_labels
from resnet_fn.parity.compare.probes import compare_probes, judge_probes
from resnet_fn.parity.pair.like import like_of
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.record import record
from resnet_fn.parity.replay import names_of, replay
from resnet_fn.parity.show.table import table
from resnet_fn.parity.trace.data import Probe
from resnet_fn.parity.trace.difference import OK
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.source import ProbeAnswer
from small_nets import (
    SGD,
    Ours,
    Theirs,
    agrees,
    cell,
    draw,
    ladder_of,
    module,
    ours,
    record_live,
    record_reference,
    stage_of,
    stored,
    t,
    theirs,
    theirs_of,
    torch,
)

pytestmark = pytest.mark.usefixtures("device")


def symmetric():
    square = draw(4, 8, 8)
    return square + square.swapaxes(1, 2)


INPUTS = {
    "positive": lambda: np.abs(draw(4, 8)) + 0.1,
    "small": lambda: draw(4, 8).clip(-0.9, 0.9),
    "images": lambda: draw(4, 8, 6, 6),
    "ids": lambda: np.array([[1, 2, 3], [3, 2, 1]] * 2),
    "mask": lambda: (draw(4, 5, 8), np.ones((4, 5), bool)),
    "sequences": lambda: draw(4, 4, 8),
    "symmetric": symmetric,
    "vectors": lambda: draw(4, 8),
}


def functions(forward, construct):
    """What both nets' heads are given, by functions of the nets and their inputs."""
    return (
        theirs(lambda n, *x: n.head(forward(n, *x)), t.Embedding(9, 8)),
        ours(lambda n, *x: n.head(construct(n, *x)), nn.Embedding(9, 8)),
    )


def with_limited_gradient(x):
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient.clamp(-99, 99))
    return x


# what differs: inputs, the reference and the port, what a finding or a line must contain
KINDS = {
    "ReLU for LeakyReLU": (
        "positive",
        lambda: (Theirs(t.LeakyReLU(0.1)), Ours(nn.ReLU())),
        ["−x", "`part`"],
    ),
    "an upper limit": ("small", lambda: (Theirs(t.ReLU6()), Ours(nn.ReLU())), ["10·x", "`part`"]),
    "a higher limit": (
        "small",
        lambda: (Theirs(t.Hardtanh(-90, 90)), Ours(nn.Hardtanh(-99.0, 99.0))),
        ["above 90"],
    ),
    "odd sizes": (
        "images",
        lambda: (Theirs(t.MaxPool2d(2, ceil_mode=True)), Ours(nn.MaxPool2d(2, 2))),
        ["sizes − 1", "the outputs", "part: ceil_mode False in the port, True in the reference"],
    ),
    "ids": (
        "ids",
        lambda: functions(
            lambda n, ids: n.part(ids).mean(1),
            lambda n, ids: n.part(ops.minimum(ids, Tensor(5))).mean(1),
        ),
        ["every id once", "the outputs"],
    ),
    "a mask that hides nothing": (
        "mask",
        lambda: functions(
            lambda n, x, mask: (x * mask[..., None]).sum(1), lambda n, x, mask: x.sum(1)
        ),
        ["masks inverted", "the outputs"],
    ),
    "buckets": (
        "sequences",
        lambda: functions(
            lambda n, x: (x + n.part(torch.arange(x.shape[1]).clamp(max=5))).mean(1),
            lambda n, x: (x + n.part(ops.minimum(ops.arange(x.shape[1]), Tensor(6)))).mean(1),
        ),
        ["sizes × 2"],
    ),
    "a symmetric matrix": (
        "symmetric",
        lambda: functions(lambda n, x: x.sum(1) * 0 + x[:, 1], lambda n, x: x[:, :, 1]),
        ["inputs: always symmetric"],
    ),
    "squeeze": (
        "vectors",
        lambda: functions(lambda n, x: x, lambda n, x: x.expand_dims(1).squeeze()),
        ["one sample", "the outputs"],
    ),
    "a clamp of a norm": (
        "vectors",
        lambda: functions(
            lambda n, x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-6),
            lambda n, x: x / ops.maximum(ops.norm(x, dim=1, keepdim=True), Tensor(1e-3)),
        ),
        ["test_probes.py", "nothing below 1e-06"],
    ),
    "eps beside large variances": (
        "vectors",
        lambda: (Theirs(t.LayerNorm(8, eps=1e-8)), Ours(nn.LayerNorm((8,), epsilon=2e-7))),
        ["0.01·x", "`part`"],
    ),
    "eps of a norm by hand": (
        "vectors",
        lambda: functions(
            lambda n, x: x / (x**2).mean(1, keepdim=True).add(1e-6).sqrt(),
            lambda n, x: x / ((x**2).mean(1, keep_dims=True) + 1e-7).sqrt(),
        ),
        ["0.01·x: the outputs"],
    ),
    "a batch size in training": (
        "vectors",
        lambda: functions(
            lambda n, x: x - x.mean(0) if n.training else x,
            lambda n, x: x - x.sum(0) / 4 if n.training else x,
        ),
        ["n + 1 samples, in training mode: the outputs"],
    ),
    "labels, clipping": (
        "vectors",
        lambda: (Theirs(t.ReLU()), Ours(nn.ReLU())),
        ["labels: of 3 classes, no label is 2", "clipping: it acts in 0 of 1 updates"],
    ),
    "a layer that is never called": (
        "vectors",
        lambda: functions(lambda n, x: x, lambda n, x: x),
        ["never called: part", "without gradient: part"],
    ),
}


# what no update of the reference reaches
LIMITS = {
    "another function of large numbers": (
        "vectors",
        lambda n, x: torch.where(x.abs() < 99, x, x.sign()),
        ["(where): a condition is always true"],
    ),
    "an if": (
        "vectors",
        lambda n, x: x / 2 if x.abs().max() > 99 else x,
        [": a condition is always false"],
    ),
    "a comparison that is a factor": (
        "vectors",
        lambda n, x: x * (x < 99),
        ["(lt): a condition is always true"],
    ),
    "a comparison that is an index": (
        "vectors",
        lambda n, x: x.index_put((x == 99,), torch.zeros(1)),
        ["(eq): a condition is always false"],
    ),
    "a limit by a tensor": (
        "vectors",
        lambda n, x: torch.minimum(x.clamp(max=torch.tensor(99)), x + 1),
        ["clamp: nothing above a tensor", "minimum: its argument 2 never decides"],
    ),
    "a modulus": ("positive", lambda n, x: x.abs() % 99, ["remainder: no number wraps"]),
    "a truncation": (
        "sequences",
        lambda n, x: x[:, :99, ...][..., -99:].mean(1),
        ["getitem: slice 2 leaves nothing out"],
    ),
    "parts": (
        "sequences",
        lambda n, x: sum(part.mean(1) for part in x.split(99, 1)),
        ["split: always one part"],
    ),
    "the largest numbers": (
        "sequences",
        lambda n, x: x.topk(min(99, x.shape[1]), 1)[0].mean(1),
        ["topk: it takes all"],
    ),
    "a function without a padding row": (
        "ids",
        lambda n, ids: t.functional.embedding(ids, n.part.weight, padding_idx=8).mean(1),
        ["embedding: no id is 8, to whose row it passes no gradient"],
    ),
    "a limit of gradients": (
        "vectors",
        lambda n, x: with_limited_gradient(x + n.part.weight.mean(0)),
        ["clamp: nothing below -99", "clamp: nothing above 99"],
    ),
    "missing numbers": (
        "vectors",
        lambda n, x: x.nan_to_num(),
        ["nan_to_num: every number is finite"],
    ),
}


USE = SGD.changed(clip_norm=1e6)


def batches_of(inputs):
    return [(inputs, np.array([0, 1, 0, 1], np.int32))]


def compared(inputs, module, net):
    return ladder_of(net, module, batches_of(inputs), USE, quick=False)


def limits_of(module, loss=None, inputs=None):
    """What no update of the reference reaches."""
    batches = batches_of(draw(4, 8) if inputs is None else inputs)
    plan = plan_of(USE, batches, custom_loss=loss is not None)
    return record_reference(module, plan, loss).limits


@pytest.mark.parametrize("kind", KINDS)
def test_faults_the_batches_hide_get_a_line(kind):
    inputs, nets, words = KINDS[kind]
    ladder = compared(INPUTS[inputs](), *nets())
    assert ladder.agrees, table(ladder)
    lines = [*ladder.probed.lines(), *ladder.coverage.not_exercised]
    for word in words:
        assert any(word in line for line in lines), lines


@pytest.mark.parametrize("kind", LIMITS)
def test_what_the_reference_never_does_gets_a_line(kind):
    inputs, function, words = LIMITS[kind]
    module, _ = functions(function, None)
    limits = limits_of(module, inputs=INPUTS[inputs]())
    for word in words:
        assert any(word in line for line in limits), limits


def test_the_verdict_names_what_was_compared():
    ladder = compared(draw(4, 8), Theirs(t.ReLU()), Ours(nn.ReLU()))
    (line,) = [line for line in table(ladder).splitlines() if line.startswith("verdict: ")]
    assert "for 1 batch of [4, 8] and " in line
    assert line.endswith("; 2 of 2 layers compared")
    assert not ladder.probed.findings
    assert {"0.01·x", "−x", "10·x", "one sample"} == set(ladder.probed.agreed["part"])


def test_probes_keep_arguments_and_never_scale_integers():
    def forward(self, x):
        return self.head(self.part(x, times=x.mean(), count=3))

    scaled = module(lambda self, x, *, times, count: x * times + count)
    ported = cell(lambda self, x, *, times, count: ops.relu(x) * times + count)
    ladder = compared(np.abs(draw(4, 8)), theirs(forward, scaled), ours(forward, ported))
    assert ladder.agrees
    finding = next(finding for finding in ladder.probed.findings if finding.layer == "part")
    assert finding.probe == "−x"
    assert finding.difference.port == pytest.approx(3)


def test_arguments_of_one_size_are_cropped_together():
    """Torch's weight norm reads beyond g, the shorter one, and ends the process some time later."""
    conv = t.utils.parametrizations.weight_norm(t.Conv1d(32, 32, 16, padding=8, groups=4), dim=2)
    net = theirs(lambda n, x: n.head(n.part(x)[..., :8].mean(1)), conv)
    recorded = record_reference(net, plan_of(SGD, batches_of(draw(4, 32, 12))))
    (name,) = [name for name in recorded.probes if "parametrizations" in name]
    cropped = recorded.probes[name]["cropped by one along axis 2"]
    assert cropped.outputs["output"].shape == (32, 8, 15)


def test_kernels_of_mindspore_are_named_and_not_accused():
    ladder = compared(draw(4, 8), Theirs(t.Tanh()), Ours(nn.Tanh()))
    assert not ladder.probed.findings
    assert any("part" in line and "10·x" in line for line in ladder.probed.kernels)


def leaky():
    """The recording of a module, and what its batch cannot show."""
    return record_live(Theirs(t.LeakyReLU(0.1)), plan_of(SGD, batches_of(np.abs(draw(4, 8)))))


def test_traces_give_the_findings_of_live_probes(tmp_path, capsys):
    live = leaky()
    save_recording(live.trace, tmp_path / "theirs", source=live.source)
    reference, net = load_recording(tmp_path / "theirs"), Ours(nn.ReLU())
    side = MindSporeSide(net, reference.plan)
    names = names_of(side, reference)
    save_recording(record(side, like_of(reference, names, False)).trace, tmp_path / "ours")
    port = load_recording(tmp_path / "ours")

    def judged():
        return judge_probes(compare_probes(port, reference, names.layers, OK), ProbeAnswer({}))

    for probed in (replay(stored(reference), net, initialisation=False).probed, judged()):
        names_of_findings = [(finding.layer, finding.probe) for finding in probed.findings]
        assert names_of_findings == [("part", "−x"), ("", "−x")]

    command = ["compare", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--no-initialisation"]
    assert main([*command, "--json", str(tmp_path / "ladder.json")]) == 0
    assert "on your batches the same; with −x: `part` differs" in capsys.readouterr().out
    read = json.loads((tmp_path / "ladder.json").read_text())
    assert {finding["layer"] for finding in read["probes"]} == {"", "part"}
    assert read["coverage"]["layers compared"] == 2
    assert main([*command, "--strict"]) == 1
    assert main([*command, "--strict", "--quick"]) == 0

    # What one side lacks or the reference rejects is no agreement; what the port alone rejects is a
    # finding.
    del port.probes[""]["10·x"]
    port.probes[""]["0·x"] = Probe({}, "ValueError: no", further=port.probes[""]["0·x"].further)
    reference.probes[""]["−x"] = Probe({}, "ValueError: no")
    probed = judged()
    (finding,) = [finding for finding in probed.findings if not finding.layer]
    assert finding.probe == "0·x"
    assert "ValueError: no" in finding.words
    assert {"10·x", "−x"} < probed.left_out.keys()


def test_without_measured_rounding_the_tolerance_decides_findings(tmp_path):
    from resnet_fn.parity.record.torch_source import TorchSource

    class Fails(TorchSource):
        def probe_rounding(self, asked):
            return ProbeAnswer({}, "RuntimeError: no float64")

    reference = leaky()
    reference.source.__class__ = Fails
    ladder = replay(reference, Ours(nn.ReLU()), initialisation=False, mode="pynative")
    assert [finding.layer for finding in ladder.probed.findings] == ["part", ""]
    line = ladder.probed.left_out["the rounding of probes"]
    assert "not measured (RuntimeError: no float64)" in line
    save_recording(reference.trace, tmp_path / "theirs", source=reference.source)
    saved = load_recording(tmp_path / "theirs")
    assert saved.probes == {}
    line = "cannot be measured (RuntimeError: no float64), so the trace has no probes"
    assert line in saved.notes[-1]


def test_an_unused_limit_of_a_loss_is_listed():
    """Each batch has a positive label, so the guard of an empty batch is not tried."""

    def loss(outputs, labels):
        return (outputs[:, 0] * labels).sum() / labels.sum().clamp(min=1)

    limits = limits_of(Theirs(t.ReLU()), loss)
    assert any("clamp: nothing below 1" in line for line in limits)


@pytest.mark.parametrize(("ignored", "lines"), [(2, 1), (1, 0), (-100, 0)])
def test_a_label_that_no_batch_ignores_is_listed(ignored, lines):
    def loss(outputs, labels):
        return t.functional.cross_entropy(outputs, labels.long(), ignore_index=ignored)

    limits = limits_of(Theirs(t.ReLU()), loss)
    assert sum("no label is 2, which it ignores" in line for line in limits) == lines


TOKENS = np.int32([[0, 1, 1], [1, 2, 1], [2, 0, 1], [1, 1, 1]])


@pytest.mark.parametrize(
    ("labels", "shape", "lines"),
    [
        (TOKENS, -1, 1),
        (np.where(TOKENS == 2, -100, TOKENS), -1, 0),
        (TOKENS[:, :1], -1, 0),  # one label of each sample
        (TOKENS.ravel(), (4, 3), 1),
        ((TOKENS[:, 0], TOKENS), -1, 0),  # the loss reads the first, which has no positions
    ],
)
def test_positions_ignored_by_default_are_listed(labels, shape, lines):
    """Of labels with several positions in a sample, as those of language models."""

    def loss(outputs, labels):
        labels = labels[0] if isinstance(labels, tuple) else labels
        target = labels.reshape(shape).long()
        outputs = outputs[:, :, None].expand(-1, -1, labels.numel() // 4)
        if target.ndim == 1:
            outputs = outputs.transpose(1, 2).flatten(0, 1)
        return t.functional.cross_entropy(outputs, target)

    plan = plan_of(USE, [(draw(4, 8), labels)], custom_loss=True)
    limits = record_reference(Theirs(t.ReLU()), plan, loss, probes=False).limits
    assert sum("no label is -100, which it ignores" in line for line in limits) == lines


@pytest.mark.parametrize(
    ("last", "trains", "lines"),
    [
        ([1, 2, 3], True, ["part: no id is 0, to whose row it passes no gradient"]),
        ([1, 2, 0], True, []),
        ([1, 2, 3], False, []),
    ],
)
def test_a_padding_row_without_an_id_is_listed(last, trains, lines):
    """Probes look up every id, but train no row."""
    module = theirs(lambda n, ids: n.head(n.part(ids).mean(1)), t.Embedding(9, 8, padding_idx=0))
    module.part.weight.requires_grad_(trains)
    ids = INPUTS["ids"]()
    batches = [*batches_of(ids), *batches_of(np.concatenate([ids[:3], [last]]))]
    trace = record_reference(module, plan_of(USE, batches))
    assert "every id once" in trace.probes[""]
    assert [line for line in trace.limits if "no id is" in line] == lines


def test_decided_conditions_need_no_line():
    """Conditions that are decided both ways, or checked, and the ladder's and PyTorch's own."""

    def forward(net, x):
        assert (x < 1e9).all()
        if (x != x).any():
            raise ValueError("NaN")
        x = torch.where(x > 0, x, 2 * x).masked_fill(x > 1, 0.5)
        q, k, v = torch.cat([x, x, x], 1).split(8, 1)
        x = torch.cat([q[:, :3], k[:, 3:6], v[:, 6:8]], 1)
        x = x * (x > 0.1) + torch.relu(x) % 0.3 + x.topk(2)[0].sum(1, keepdim=True)
        x = net.norm(x.where(x < 0.2, x + 0.1))
        return net.head(x + net.attention(x[None], x[None], x[None])[0][0])

    attention = t.MultiheadAttention(8, 2, batch_first=True)
    reference = theirs(forward, norm=t.BatchNorm1d(8), attention=attention)
    assert not [line for line in limits_of(reference) if "test_probes.py" in line]


@pytest.mark.parametrize(
    ("labels", "lines"),
    [
        (np.int32([1, 1, 1, 1]), ["labels: of 3 classes, no label is 0, 2"]),
        (np.float32([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]]), []),
        (np.float32([[0.5]]), []),
        (np.int32([[0, -1], [-1, 2]]), ["labels: as many negative ones in each sample"]),
        (np.int32([[0, -1], [1, 2]]), []),
    ],
)
def test_ordinary_labels_cost_at_most_one_line(labels, lines):
    trace = record_reference(
        Theirs(t.ReLU()),
        plan_of(SGD, [(draw(len(labels), 8), labels)], custom_loss=True),
        lambda outputs, labels: outputs.square().mean(),
    )
    assert list(lines_of_labels(trace)) == lines


@pytest.mark.parametrize("varied", [True, False])
def test_labels_that_hide_a_fault_are_listed(varied):
    """A port may leave out weights of samples that are all 1, or take the class of soft labels."""
    weights = np.float32([1, 1 + varied, 1, 1])
    target = np.float32(np.eye(3)[[0, 1, 2, 0]] * (1 - varied / 2))

    def squared(outputs, labels):
        return (((outputs - labels[1]) ** 2).mean(1) * labels[0]).mean()

    batches, losses = (
        [(draw(4, 8), (weights, target))],
        {"reference_loss": squared, "loss": squared},
    )
    ladder = agrees(Ours(nn.ReLU()), Theirs(t.ReLU()), batches, **losses)
    lines = [line for line in ladder.coverage.not_exercised if line.startswith("labels")]
    assert lines == ([] if varied else ["labels 0: always 1.0", "labels 1: only 0 and 1"])


def test_outputs_without_a_loss_are_listed():
    """A port may stop the gradient of such an output."""

    def forward(net, x):
        hidden = net.part(x)
        return {"logits": net.head(hidden), "boxes": net.box(hidden), "hidden": hidden}

    limits = limits_of(theirs_of(forward, box=t.Linear(8, 4)))
    words = "the loss does not depend on these outputs, so their gradients are not compared"
    assert [line for line in limits if words in line] == [f"{words}: logits boxes"]


class Uncertain(t.Module):
    """A loss that trains weights of its own."""

    def __init__(self):
        super().__init__()
        self.sizes = t.Parameter(torch.zeros(2))
        self.anchors = t.Parameter(torch.eye(3))

    def forward(self, outputs, labels):
        error = t.functional.cross_entropy(outputs @ self.anchors, labels.long())
        return (error * (-self.sizes).exp() + self.sizes).sum()


def test_arrays_beside_the_net_are_listed():
    """Leaves that a forward pass makes, as for a penalty of gradients, are none."""

    def forward(net, x):
        x = x.detach().requires_grad_()
        return net.head(net.part(x))

    line = (
        "gradients reach arrays that are no parameters of the net ([2], [3, 3]) and are not "
        "compared; if they are trained, make them parameters of the net, else freeze them"
    )
    assert line in limits_of(theirs_of(forward), Uncertain())
    assert not [line for line in limits_of(theirs_of(forward)) if "gradients reach" in line]


def test_arguments_that_no_batch_gives_are_listed():
    def forward(net, x, mask=None, scale=1, more=None):
        return net.head(x if mask is None else x * mask)

    x = draw(4, 8)
    for inputs, left in ((x, "mask, more"), ((x, x, None), "more"), ({"x": x, "more": x}, "mask")):
        limits = limits_of(theirs(forward), inputs=inputs)
        assert limits[-1] == f"arguments that are not given: {left}"


def test_only_known_switches_of_outputs_are_left_out():
    def forward(net, x, output_size=None, use_mask=None, return_dict=None, use_cache=None):
        return net.head(x)

    limits = limits_of(theirs(forward))
    assert limits[-1] == "arguments that are not given: output_size, use_mask"


def test_failing_probes_do_not_cost_the_verdict():
    """The module refuses all after another batch than the first."""

    def forward(net, x):
        net.refuses = getattr(net, "refuses", False) or len(x) != 4
        if net.refuses:
            raise ValueError("another batch")
        return x

    ladder = compared(draw(4, 8), Theirs(module(forward)), Ours(nn.Identity()))
    lines = table(ladder)
    assert ladder.agrees, lines
    assert "the probes of PyTorch failed, so there are none (ValueError: another batch)" in lines
    assert "and 0 probes" in lines


def test_attributes_changed_by_probes_are_restored():
    def construct(self, x):
        self.most = max(self.most, len(x))
        self.sizes.append(len(x))
        self.more = [*self.more, len(x)]
        return x

    counts = cell(construct, most=0, sizes=[0], more=[])
    ladder = compared(draw(4, 8), Theirs(t.Identity()), Ours(counts))
    assert ladder.probed.agreed["part"]
    assert (counts.most, counts.sizes, counts.more) == (0, [0], [])


def test_large_images_are_probed_with_few_samples():
    def pooled(x):
        return x[:, :, ::28, 0].mean(1)

    def looked_up(self, images, ids):
        return self.head(pooled(self.part(images)) + self.table(ids).mean(1))

    ids = np.arange(9).reshape(3, 3) % 6
    batches = [((draw(3, 3, 224, 224), ids), np.array([0, 1, 2], np.int32))]
    recorded = record_reference(
        theirs(looked_up, t.ReLU(), table=t.Embedding(6, 8)), plan_of(SGD, batches)
    )
    assert recorded.probes["part"]["−x"].outputs["output"].shape == (1, 3, 224, 224)
    assert recorded.probes[""]["n + 1 samples"].outputs["logits"].shape == (3, 3)
    assert "every id once (inputs 1)" in recorded.probes[""]
    # it takes no single sample
    port = ours(lambda n, x: n.head(pooled(n.part(x)).reshape(4, 8)), nn.ReLU())
    reference = theirs(lambda n, x: n.head(pooled(n.part(x))), t.ReLU())
    ladder = compared(draw(4, 3, 224, 224), reference, port)
    assert {finding.layer for finding in ladder.probed.findings} == {""}


def test_a_failing_float16_probe_leaves_updates_in_float32():
    """MindSpore would compute all that follows in float16: `process.ending_mixed_precision`."""
    half = nn.Dense(8, 8).to_float(mindspore.float16)
    net = ours(lambda n, x: n.head(n.part(x).astype(mindspore.float32)), half)
    ladder = compared(draw(4, 8), Theirs(t.Linear(8, 8)), net)
    assert stage_of(ladder, "change by update 1").verdict == "ok", table(ladder)
