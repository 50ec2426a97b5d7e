"""Faults inside attention and dense layers are named; right ones, and others, are not."""

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.layer_outputs import compare_layers
from resnet_fn.parity.mindspore_side import layers_of, state

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
from resnet_fn.parity.torch_side import layers_of as torch_layers_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

RNG = np.random.default_rng(0)
INPUTS = {
    "x": RNG.normal(size=(3, 5, 8)).astype(np.float32),
    "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], bool),
}


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        torch.nn.init.normal_(self.attn.in_proj_bias)
        torch.nn.init.normal_(self.attn.in_proj_weight)

    def forward(self, x, mask):
        return self.attn(x, x, x, key_padding_mask=~mask)[0]


class Attention(nn.Cell):
    """A port whose faults are its arguments."""

    def __init__(self, scale=0.5, masked=True, fused=False):
        super().__init__()
        self.scale, self.masked, self.fused = scale, masked, fused
        if fused:
            self.qkv = nn.Dense(8, 24)
        else:
            self.q, self.k, self.v = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)
        self.out_proj = nn.Dense(8, 8)

    def construct(self, x, mask):
        parts = ops.split(self.qkv(x), 8, 2) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.reshape(3, 5, 2, 4).transpose(0, 2, 1, 3) for part in parts)
        scores = ops.matmul(q, k.swapaxes(2, 3)) * self.scale
        if self.masked:
            scores = scores.masked_fill(ops.logical_not(mask).reshape(3, 1, 1, 5), -1e9)
        mixed = ops.matmul(ops.softmax(scores, -1), v)
        return self.out_proj(mixed.transpose(0, 2, 1, 3).reshape(3, 5, 8))


class Whole(nn.Cell):
    """MindSpore's own attention, with the mask the wrong way round."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def construct(self, x, mask):
        return self.attn(x, x, x, key_padding_mask=mask)[0]


@pytest.fixture
def first_hints(paired):
    def hints(net, module, inputs):
        names, ours, theirs = paired(net, module, inputs)
        assert names.problems == ()
        found = compare_layers({"eval": ours["eval"]}, {"eval": theirs["eval"]}, names.layers, state(net), inputs)
        return next((item.hints for item in found if item.output.verdict == "DIFFERS"), None)

    return hints


HIDES = "hides where inputs mask is 0"


# Others are planted in test_faults.py.
def test_an_attention_that_mixes_otherwise_is_named(first_hints):
    torch.manual_seed(0)
    for words, fault in (
        ("attention: scores times 1 here, 1/√4 in the reference", {"scale": 1.0, "fused": True}),
        (f"attention: mask: none here, {HIDES} in the reference", {"masked": False}),
    ):
        assert first_hints(Attention(**fault), Reference(), INPUTS) == (words,)


def test_mindspores_own_attention_with_the_mask_the_other_way_round_is_named(first_hints):
    torch.manual_seed(0)
    inputs = {**INPUTS, "mask": INPUTS["mask"].copy()}
    inputs["mask"][1, 4] = False
    assert first_hints(Whole(), Reference(), inputs) == (
        f"attention: mask: hides where inputs mask is not 0 here, {HIDES} in the reference",
    )


class Inside(nn.Cell):
    """The port's attention as a cell of its own, which the reference's stands for whole."""

    def __init__(self, **fault):
        super().__init__()
        self.attn = Attention(**fault)

    def construct(self, x, mask):
        return self.attn(x, mask)


def test_an_attention_that_is_a_cell_of_the_users_is_named(first_hints):
    torch.manual_seed(0)
    assert first_hints(Inside(scale=0.25), Reference(), INPUTS) == (
        "attention: scores times 1/4 here, 1/√4 in the reference",
    )
    assert first_hints(Inside(scale=0.3), Reference(), INPUTS) == ()  # no known fault: nothing is said of its class
    assert first_hints(Inside(), Reference(), INPUTS) is None


def test_a_right_attention_needs_no_cause_and_an_unknown_fault_gets_none(first_hints):
    torch.manual_seed(0)
    for fused in (False, True):
        assert first_hints(Attention(fused=fused), Reference(), INPUTS) is None
    (hint,) = first_hints(Attention(scale=0.3), Reference(), INPUTS) or ("",)
    assert "attention:" not in hint


class Product(nn.Dense):
    """A dense layer by hand, in the reference's place."""

    def __init__(self, bias):
        super().__init__(8, 8)
        self.with_bias = bias

    def construct(self, x):
        y = ops.matmul(x, self.weight.T)
        return y + self.bias if self.with_bias else y


def test_a_bias_that_is_left_out_is_named(first_hints):
    module = torch.nn.Sequential(torch.nn.Linear(8, 8))
    words = "its output has 0.bias added in the reference and not here"
    assert first_hints(nn.SequentialCell(Product(False)), module, INPUTS["x"]) == (words,)
    assert first_hints(nn.SequentialCell(Product(True)), module, INPUTS["x"]) is None


def test_the_form_of_a_gelu_that_has_no_setting_is_told_by_what_it_does():
    class GELU(torch.nn.Module):  # timm's, without a word on its form
        def forward(self, x):
            return torch.nn.functional.gelu(x)

    def hints(cell):
        ours = layers_of(nn.SequentialCell(cell), INPUTS["x"], False)
        theirs = torch_layers_of(torch.nn.Sequential(GELU()), INPUTS["x"], False)
        return compare_layers({"eval": ours}, {"eval": theirs}, {"0": "0"}, {"none": INPUTS["x"]})[0].hints

    assert hints(nn.GELU()) == ("approximate tanh here, none in the reference",)
    assert hints(nn.GELU(approximate=False)) == ()
    assert hints(nn.FastGelu()) == ()
