"""Faults that the first batch's outputs do not show: inside a layer, or on a later batch alone."""

import json
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.__main__ import main
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of, title_of_stage
from small_nets import SGD, agrees, ladder_of, ours, stage_of, t, theirs, torch, write_net

pytestmark = pytest.mark.usefixtures("device")

ONE, TWO = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2], np.int32)


def their_forward(self, x):
    """Its GELU adds a millionth to the outputs."""
    x = self.first(x)
    return self.head(x + 1e-6 * self.act(x))


def reference():
    return theirs(their_forward, first=t.Linear(8, 8), act=t.GELU())


def climb(clip_norm=0.0, second=TWO, approximate=False, cuts=""):
    """The ladder of a port whose inputs above 3 are cut in some mode, or gradients where they
    are.
    """

    def construct(self, x):
        kept = (x < 3).astype(mindspore.float32)
        if cuts == ("training" if self.training else "evaluation"):
            x = ops.minimum(x, 3)
        x = self.first(x)
        if cuts == "gradients":
            x = x * kept + ops.stop_gradient(x * (1 - kept))
        return self.head(x + 1e-6 * self.act(x))

    net = ours(construct, first=nn.Dense(8, 8), act=nn.GELU(approximate))
    use = SGD.changed(clip_norm=clip_norm)
    return ladder_of(net, reference(), [(ONE, LABELS), (second, LABELS)], use)


def test_a_layer_is_compared_by_its_own_output():
    ladder = climb(approximate=True)
    for stage in ("eval forward", "gradients"):
        assert stage_of(ladder, stage).verdict == "ok", table(ladder)
    assert title_of_stage(ladder.first_stage) == "eval layers"
    assert ladder.first_stage.first.name == ladder.first_layer.name == "act"


@pytest.mark.parametrize(
    ("cuts", "stage", "clip_norm"),
    [
        ("evaluation", "eval forward", 0.0),
        ("training", "train forward", 0.0),
        ("gradients", "gradients", 0.0),
        ("gradients", "gradients", 0.5),
    ],
)
def test_faults_that_a_later_batch_shows_are_found(cuts, stage, clip_norm):
    assert ONE.max() < 3  # so that the first batch has nothing to cut
    ladder = climb(clip_norm, TWO + 2, cuts=cuts)
    assert title_of_stage(ladder.first_stage) == f"{stage}, later batches", table(ladder)
    assert title_of(ladder.first_stage.first.id).endswith(" of batch 2")
    if cuts == "evaluation":
        differing = [stage for stage in ladder.stages if stage.verdict == "DIFFERS"]
        assert differing == [ladder.first_stage]


def test_later_batches_are_compared_at_the_first_weights():
    """By torch, batch by batch, from a copy that no update has changed."""
    module = reference()
    net = ours(their_forward, first=nn.Dense(8, 8), act=nn.GELU(approximate=False))
    batches = [(ONE, LABELS), (TWO, LABELS), (TWO + 2, LABELS)]
    ladder = agrees(net, module, batches, SGD.changed(clip_norm=0.5))
    items = {
        title_of(item.id): item
        for stage in ("loss", "gradients")
        for item in stage_of(ladder, f"{stage}, later batches").differences
    }
    for number, (images, _) in enumerate(batches[1:], 2):
        module.zero_grad()
        outputs, labels = module(torch.from_numpy(images)), torch.from_numpy(LABELS).long()
        loss = t.functional.cross_entropy(outputs, labels)
        loss.backward()
        assert items[f"loss of batch {number}"].port == pytest.approx(loss.item(), rel=1e-6)
        item = items[f"head.bias of batch {number}"]
        assert item.port == pytest.approx(float(module.head.bias.grad[item.place]), rel=1e-5)


@pytest.mark.parametrize(("epsilon", "code"), [("1e-5", 0), ("2e-5", 1)])
def test_errors_beyond_rounding_are_named_and_fail_strict(epsilon, code, capsys):
    body = "return self.head(self.norm(x.reshape(len(x), -1)))"
    layers = "self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, 10)"
    write_net("theirs.py", "torch", layers, body)
    layers = f"self.norm, self.head = nn.LayerNorm((48,), epsilon={epsilon}), nn.Dense(48, 10)"
    write_net("ours.py", "mindspore", layers, body)
    words = (
        "--reference theirs.py:Net --net ours.py:Net --image-size 4 --steps 2 "
        "--no-initialisation --json ladder.json --strict --quick --mode=pynative"
    )
    assert main(words.split()) == code
    out, ladder = capsys.readouterr().out, json.loads(Path("ladder.json").read_text())
    assert ladder["agrees"]
    assert bool(ladder["beyond_rounding"]) == bool(code)
    assert ("within tolerance; " in out) == bool(code)
    if code:
        name, times = next(iter(ladder["beyond_rounding"].items()))
        assert f"beyond rounding: {name} {times:.2g} ×" in out
        assert times > 1
