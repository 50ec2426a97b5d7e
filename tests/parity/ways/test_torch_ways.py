"""One torch module in two ways: right ones agree, and each fault is named by its own way."""

from collections import namedtuple

import numpy as np
import pytest

from resnet_fn.parity.show.titles import title_of_stage
from small_nets import Theirs, images, module, t, torch

from resnet_fn.parity.ways.torch_net import TorchNet  # isort: skip (imports torch)


def between(middle):
    """Two dense layers with something between."""
    return Theirs(t.Linear(8, 8), middle)


def transformer(hides=True):
    def forward(self, ids, mask):
        x = self.encoder(self.embed(ids), src_key_padding_mask=~mask if hides else None)
        return self.head((x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))

    layer = t.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = t.TransformerEncoder(layer, 1)
    return module(forward, embed=t.Embedding(20, 8), encoder=encoder, head=t.Linear(8, 3))


def recurrent():
    def forward(self, ids, mask):
        x, _ = self.lstm(self.embed(ids))
        return self.head(x[torch.arange(len(x)), mask.sum(1) - 1])

    lstm = t.LSTM(8, 8, batch_first=True)
    return module(forward, embed=t.Embedding(20, 8), lstm=lstm, head=t.Linear(8, 3))


def centred():
    return module(lambda self, x: x - x.mean(0))


def counting(*modes, saved):
    """Counts its calls in these modes of `training`, in a buffer or in an attribute."""

    def forward(self, x):
        if self.training in modes:
            self.calls += 1
        return x * (1 + self.calls)

    return module(forward, calls=t.Buffer(torch.zeros(1)) if saved else 0)


WAYS = ("repeated", "alone", "unpadded", "restored", "micro-batches", "half")


def accepted(net, result, left_out):
    for way in WAYS:
        compared = result(way, net, half="bfloat16")
        if way in left_out:
            assert left_out[way] in compared.skipped
        else:
            assert compared.verdict in ("ok", "rounding"), (way, compared)


def test_right_nets_of_images_are_accepted(plan, result):
    net = Theirs(t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU())
    left_out = {"unpadded": "not exercised", "micro-batches": "statistics of the batch"}
    accepted(TorchNet(net, plan(images)), result, left_out)


@pytest.mark.parametrize("build", [transformer, recurrent])
def test_right_nets_of_texts_are_accepted(build, plan_of_texts, result):
    accepted(TorchNet(build(), plan_of_texts), result, {})


def test_a_layer_that_mixes_samples_is_named(plan, result):
    mixed = result("alone", TorchNet(between(centred()), plan()))
    assert (mixed.verdict, title_of_stage(mixed.first_stage)) == ("DIFFERS", "eval forward")
    assert mixed.first_layer.name == "part.1"


def test_small_scales_hide_no_mixed_samples(plan, result):
    """A layer is scaled so far down that no output shows it."""
    scaled = module(lambda self, x: x + 1e-9 * self.inner(x), inner=centred())
    mixed = result("alone", TorchNet(between(scaled), plan()))
    assert title_of_stage(mixed.first_stage) == "eval layers"
    assert mixed.first_layer.name == "part.1.inner"


def test_an_ignored_mask_shows_without_padding(plan_of_texts, result):
    net = TorchNet(transformer(hides=False), plan_of_texts)
    assert result("alone", net).verdict == "ok"
    unpadded = result("unpadded", net)
    assert unpadded.verdict == "DIFFERS"
    assert unpadded.first_layer.name.startswith("encoder")


def test_an_evaluation_that_moves_state_is_named(plan, result):
    net = TorchNet(between(counting(False, saved=True)), plan())
    repeated = result("repeated", net)
    assert title_of_stage(repeated.first_stage) == "weights"
    assert repeated.first_stage.first.name == "part.1.calls"
    assert repeated.first_layer.name == "part.1"
    assert result("restored", net).verdict == "ok"


def test_state_outside_the_state_dict_is_not_restored(plan, result):
    saved, unsaved = (
        TorchNet(between(counting(True, saved=saved)), plan()) for saved in (True, False)
    )
    assert result("restored", saved).verdict == "ok"
    assert result("repeated", unsaved).verdict == "ok"
    restored = result("restored", unsaved)
    assert (restored.verdict, restored.first_layer.name) == ("DIFFERS", "part.1")


def test_a_summed_loss_differs_in_micro_batches(plan, result):
    def summed(outputs, labels):
        return t.functional.cross_entropy(outputs, labels.long(), reduction="sum")

    parts = result("micro-batches", TorchNet(between(t.ReLU()), plan(custom_loss=True), summed))
    assert title_of_stage(parts.first_stage) == "loss"
    assert "1/2" in parts.notes[0]


def test_an_overflow_is_not_explained_by_precision(plan, result):
    """A softmax whose numbers are beyond float16, but not beyond bfloat16."""

    def unsafe(self, x):
        e = 1e6 * x.exp()
        return e / e.sum(-1, keepdim=True)

    net = TorchNet(between(module(unsafe)), plan())
    half = result("half", net, half="float16")
    assert (half.words, half.first_layer.name) == ("explained: no", "part.1")
    assert result("half", net, half="bfloat16").words == "explained: yes"


@pytest.mark.parametrize(("miscounts", "words"), [(0, "explained: yes"), (1, "explained: no")])
def test_integers_that_rounding_flips_are_explained(miscounts, words, plan, result):
    """Returns which numbers are above 1: those within rounding of it flip."""

    def forward(self, x):
        return self.head(x), (x > 1).long() + miscounts * (x.dtype != torch.float32)

    x = np.full((4, 50), 0.5, np.float32)
    x[0, 0] = 1 + 2.0**-12
    net = TorchNet(module(forward, head=t.Linear(50, 3)), plan(lambda: (x, np.zeros(4, np.int32))))
    assert result("half", net, half="bfloat16").words == words


def test_nets_that_fail_in_half_are_undecided(plan, result):
    masked = module(lambda self, x: x.masked_fill(x > 2, -1e9))
    half = result("half", TorchNet(between(masked), plan()), half="float16")
    assert half.verdict == "undecided"
    assert "overflow" in half.undecided


def test_outputs_that_are_not_read_are_undecided(plan, result):
    listed = module(lambda self, x: (self.head(x), (row for row in x)), head=t.Linear(8, 3))
    net = TorchNet(listed, plan())
    for way in ("repeated", "alone", "restored", "half"):
        stages = result(way, net, half="bfloat16").stages
        (stage,) = [stage for stage in stages if stage.verdict == "undecided"]
        assert "logits 1 (generator)" in stage.undecided, way


def test_a_way_leaves_the_module_as_it_was(plan, result):
    module = between(counting(True, False, saved=True))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for way in WAYS:
        result(way, TorchNet(module, plan()), half="float16")
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name].numpy())


@pytest.mark.slow  # torch's compiler takes a minute on two cores
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_computes_the_same(plan, result):
    net = TorchNet(between(t.ReLU()), plan())
    assert "--compile" in result("compiled", net).skipped
    compiled = result("compiled", net, compile=True)
    assert compiled.verdict == "ok", compiled.undecided


class Reordered(t.Conv2d):
    """Adds its numbers in another order after `compile`."""

    is_compiled = False

    def forward(self, x):
        if not self.is_compiled:
            return super().forward(x)
        turned = t.functional.conv2d(x.flip(1), self.weight.flip(1), None, padding=1)
        return turned.flip(3).flip(3) + self.bias[:, None, None]


class Biased(Theirs):
    """Has a bias before a BatchNorm: its gradient is only rounding."""

    def compile(self):
        self.part[0].is_compiled = True


def test_compiled_gradients_have_the_rounding_of_updates(plan, result):
    net = Biased(Reordered(3, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU())
    compiled = result("compiled", TorchNet(net, plan(images)), compile=True)
    assert compiled.verdict in ("ok", "rounding"), compiled


def test_random_numbers_are_not_compared_compiled(plan, result):
    noisy = module(lambda self, x: x * torch.rand(()) if self.training else x)
    compiled = result("compiled", TorchNet(between(noisy), plan()), compile=True)
    assert compiled.skipped == "not exercised: the net draws random numbers in training"


Levels = namedtuple("Levels", "low high")


def test_values_of_named_tuples_are_rounded_too(plan):
    pair = module(lambda self, x: Levels(x * 0 + 1.001, 3))
    parts = {"pair": pair, "take": module(lambda self, pair: pair.low - 1)}
    net = TorchNet(module(lambda self, x: self.take(pair=self.pair(x)), **parts), plan())
    outputs = net.rounded_to(net.plan.batches[0][0], "bfloat16").run.eval_outputs
    assert not outputs["logits"].any()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_net_in_half_is_computed_as_is(half, plan, result):
    def forward(self, x):
        return self.head(self.part(x.to(self.head.weight.dtype)))

    parts = {"part": t.Linear(8, 8), "head": t.Linear(8, 3)}
    net = TorchNet(module(forward, **parts).to(getattr(torch, half)), plan())
    for way in ("repeated", "alone", "restored", "half"):
        assert result(way, net, half="bfloat16").verdict in ("ok", "rounding"), way
