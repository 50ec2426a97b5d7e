"""One torch module in two ways: right ones agree, and each fault is named by its own way."""

from typing import Any

import numpy as np
import pytest

from resnet_fn.parity.show.titles import title_of_stage

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
from resnet_fn.parity.ways.torch_net import TorchNet  # noqa: E402 (imports torch)

t = torch.nn


class Dense(t.Module):
    """Two dense layers with something between."""

    def __init__(self, middle: Any = None) -> None:
        super().__init__()
        self.first, self.middle, self.last = t.Linear(8, 8), middle or t.ReLU(), t.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.middle(self.first(x)))


class Residual(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn1 = t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8)
        self.conv, self.bn2 = t.Conv2d(8, 8, 3, padding=1, bias=False), t.BatchNorm2d(8)
        self.head = t.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = self.bn1(self.stem(x)).relu()
        return self.head((x + self.bn2(self.conv(x))).relu().mean((2, 3)))


class Transformer(t.Module):
    def __init__(self, hides: bool = True) -> None:
        super().__init__()
        layer = t.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed, self.encoder = t.Embedding(20, 8), t.TransformerEncoder(layer, 1)
        self.head, self.hides = t.Linear(8, 3), hides

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.encoder(self.embed(ids), src_key_padding_mask=~mask if self.hides else None)
        return self.head((x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))


class Recurrent(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = t.Embedding(20, 8), t.LSTM(8, 8, batch_first=True)
        self.head = t.Linear(8, 3)

    def forward(self, ids: Any, mask: Any) -> Any:
        x, _ = self.lstm(self.embed(ids))
        return self.head(x[torch.arange(len(x)), mask.sum(1) - 1])


class Centred(t.Module):
    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


class Scaled(t.Module):
    """Adds a layer that is scaled so far down that no output shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Centred()

    def forward(self, x: Any) -> Any:
        return x + 1e-9 * self.inner(x)


class Counting(t.Module):
    """Counts its calls in the modes that it is given, in a buffer or in an attribute."""

    def __init__(self, modes: tuple[bool, ...], saved: bool) -> None:
        super().__init__()
        self.modes, self.saved, self.calls = modes, saved, 0
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        if self.training in self.modes:
            self.calls += 1
            self.count += self.saved
        return x * (1 + (self.count if self.saved else self.calls))


class Unsafe(t.Module):
    """A softmax whose numbers are beyond float16, but not beyond bfloat16."""

    def forward(self, x: Any) -> Any:
        e = 1e6 * x.exp()
        return e / e.sum(-1, keepdim=True)


def summed(outputs: Any, labels: Any) -> Any:
    return t.functional.cross_entropy(outputs, labels.long(), reduction="sum")


WAYS = ("repeated", "alone", "unpadded", "restored", "micro-batches", "half")


@pytest.mark.parametrize(
    ("build", "data", "left_out"),
    [
        (
            Residual,
            "images",
            {"unpadded": "not exercised", "micro-batches": "statistics of the batch"},
        ),
        (Transformer, "texts", {}),
        (Recurrent, "texts", {}),
    ],
)
def test_right_nets_are_accepted(build, data, left_out, batches, plan, result):
    net = TorchNet(build(), plan(batches[data]))
    for way in WAYS:
        one = result(way, net, half="bfloat16")
        if way in left_out:
            assert left_out[way] in one.skipped
        else:
            assert one.verdict in ("ok", "rounding"), (way, one)


def test_a_layer_that_mixes_samples_is_named(plan, result):
    one = result("alone", TorchNet(Dense(Centred()), plan()))
    assert (one.verdict, title_of_stage(one.first_stage)) == ("DIFFERS", "eval forward")
    assert one.first_layer.name == "middle"


def test_small_scales_hide_no_mixed_samples(plan, result):
    one = result("alone", TorchNet(Dense(Scaled()), plan()))
    assert title_of_stage(one.first_stage) == "eval layers"
    assert one.first_layer.name == "middle.inner"


def test_an_ignored_mask_shows_without_padding(batches, plan, result):
    net = TorchNet(Transformer(hides=False), plan(batches["texts"]))
    assert result("alone", net).verdict == "ok"
    one = result("unpadded", net)
    assert one.verdict == "DIFFERS"
    assert one.first_layer.name.startswith("encoder")


def test_an_evaluation_that_moves_state_is_named(plan, result):
    net = TorchNet(Dense(Counting((False,), saved=True)), plan())
    one = result("repeated", net)
    assert title_of_stage(one.first_stage) == "weights"
    assert one.first_stage.first.name == "middle.count"
    assert one.first_layer.name == "middle"
    assert result("restored", net).verdict == "ok"


def test_state_outside_the_state_dict_is_not_restored(plan, result):
    assert result("restored", TorchNet(Dense(Counting((True,), True)), plan())).verdict == "ok"
    net = TorchNet(Dense(Counting((True,), saved=False)), plan())
    assert result("repeated", net).verdict == "ok"
    one = result("restored", net)
    assert (one.verdict, one.first_layer.name) == ("DIFFERS", "middle")


def test_a_summed_loss_differs_in_micro_batches(plan, result):
    one = result("micro-batches", TorchNet(Dense(), plan(custom_loss=True), summed))
    assert title_of_stage(one.first_stage) == "loss"
    assert "1/2" in one.notes[0]
    assert result("micro-batches", TorchNet(Dense(), plan())).verdict == "ok"


def test_an_overflow_is_not_explained_by_precision(plan, result):
    net = TorchNet(Dense(Unsafe()), plan())
    one = result("half", net, half="float16")
    assert (one.words, one.first_layer.name) == ("explained: no", "middle")
    assert result("half", net, half="bfloat16").words == "explained: yes"


class Chosen(t.Linear):
    """Also returns which numbers are above 1: those within rounding of it flip."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), (x > 1).long()


class Miscounted(Chosen):
    def forward(self, x: Any) -> Any:
        outputs, chosen = super().forward(x)
        return outputs, chosen + (x.dtype != torch.float32)


def test_integers_that_rounding_flips_are_explained(plan, result):
    x = np.full((4, 50), 0.5, np.float32)
    x[0, 0] = 1 + 2.0**-12
    batch = x, np.zeros(4, np.int32)
    words = [
        result("half", TorchNet(build(50, 3), plan(batch)), half="bfloat16").words
        for build in (Chosen, Miscounted)
    ]
    assert words == ["explained: yes", "explained: no"]


def test_nets_that_fail_in_half_are_undecided(plan, result):
    class Masked(t.Module):
        def forward(self, x: Any) -> Any:
            return x.masked_fill(x > 2, -1e9)

    one = result("half", TorchNet(Dense(Masked()), plan()), half="float16")
    assert one.verdict == "undecided"
    assert "overflow" in one.undecided


class Listed(t.Linear):
    """Returns something beside its output that is no tensor."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), (row for row in x)


def test_outputs_that_are_not_read_are_undecided(plan, result):
    net = TorchNet(Listed(8, 3), plan())
    for way in ("repeated", "alone", "restored", "half"):
        one = result(way, net, half="bfloat16")
        (stage,) = [stage for stage in one.stages if stage.verdict == "undecided"]
        assert "logits 1 (generator)" in stage.undecided, way


def test_a_way_leaves_the_module_as_it_was(plan, result):
    module = Dense(Counting((True, False), saved=True))
    before = {name: one.clone() for name, one in module.state_dict().items()}
    for way in WAYS:
        result(way, TorchNet(module, plan()), half="float16")
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name].numpy())


@pytest.mark.slow  # torch's compiler takes a minute on two cores
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_computes_the_same(plan, result):
    net = TorchNet(Dense(), plan())
    assert "--compile" in result("compiled", net).skipped
    one = result("compiled", net, compile=True)
    assert one.verdict == "ok", one.undecided


class Reordered(t.Conv2d):
    """Adds its numbers in another order after `compile`."""

    is_compiled = False

    def forward(self, x: Any) -> Any:
        if not self.is_compiled:
            return super().forward(x)
        turned = t.functional.conv2d(x.flip(1), self.weight.flip(1), None, padding=1)
        return turned.flip(3).flip(3) + self.bias[:, None, None]


class Biased(t.Module):
    """Has a bias before a BatchNorm: its gradient is only rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = Reordered(3, 8, 3, padding=1), t.BatchNorm2d(8)
        self.head = t.Linear(8, 3)

    def compile(self) -> None:
        self.conv.is_compiled = True

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def test_compiled_gradients_have_the_rounding_of_updates(batches, plan, result):
    one = result("compiled", TorchNet(Biased(), plan(batches["images"])), compile=True)
    assert one.verdict in ("ok", "rounding"), one


class Noisy(t.Module):
    def forward(self, x: Any) -> Any:
        return x * torch.rand(()) if self.training else x


def test_random_numbers_are_not_compared_compiled(plan, result):
    one = result("compiled", TorchNet(Dense(Noisy()), plan()), compile=True)
    assert one.skipped == "not exercised: the net draws random numbers in training"
