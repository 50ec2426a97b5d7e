"""PyTorch's side: what is recorded of a module, and what is done to it before."""

import contextlib
import copy
import dataclasses

import numpy as np
import pytest
from mindspore import ops

from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.rates import without_dropout
from resnet_fn.parity.replay import assert_parity
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.difference import ROUNDING_FACTOR, relative_error
from resnet_fn.parity.trace.stages import CHANGED_BUFFERS, EVAL_FORWARD, GRADIENTS, LAST
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="PyTorch's side needs torch: pip install torch")
from resnet_fn.parity.record.torch_layers import layers_of, layers_with_rounding  # noqa: E402
from resnet_fn.parity.record.torch_modes import in_mode  # noqa: E402
from resnet_fn.parity.record.torch_module import not_given  # noqa: E402
from resnet_fn.parity.record.torch_optimizer import optimizer_alone  # noqa: E402
from resnet_fn.parity.record.torch_prepared import prepare_reference  # noqa: E402
from resnet_fn.parity.record.torch_run import Training  # noqa: E402
from resnet_fn.parity.record.torch_step import TorchStepper  # noqa: E402
from resnet_fn.parity.record.torch_ties import flip_ties  # noqa: E402
from small_nets import (  # noqa: E402
    ADAMW,
    SGD,
    DropPath,
    Theirs,
    draw,
    labels,
    ladder_of,
    module,
    ours_of,
    t,
    theirs_of,
    traced,
    vector,
    vectors,
)

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)


def test_transformers_run_layer_by_layer_in_evaluation():
    layer = t.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = t.Sequential(t.TransformerEncoder(layer, 1))
    tokens = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    attention, *others = layers_of(net.eval(), tokens, False)
    names = [layer.name.removeprefix("0.layers.0.") for layer in others[:3]]
    assert names == ["dropout1", "norm1", "linear1"]
    assert dict(attention.parameters)["out_proj.weight"] == (8, 8)
    assert len(attention.further) == 2


def test_restoring_a_module_keeps_its_state_dicts_version():
    """As torchvision's MNASNet does when it loads."""

    class Versioned(t.BatchNorm2d):
        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            assert metadata["version"] == 2
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    net = t.Sequential(Versioned(3))
    layers_of(net, IMAGES, True)
    assert optimizer_alone(net, plan_of(recipe("digits"), BATCHES).optimizer, None)
    assert not net[0].running_mean.any()


def test_every_dropout_becomes_0_and_is_restored():
    rates = [t.Dropout(np.float32(0.25)), t.Dropout(torch.tensor(0.25))]
    net = t.ModuleDict(
        {
            "drop": t.Dropout(0.5),
            "none": t.Dropout(0.0),
            "attn": t.MultiheadAttention(4, 2, dropout=0.1, batch_first=True),
            "lstm": t.LSTM(4, 4, 2, dropout=0.3),
            "path": DropPath(0.2),
            "rates": t.ModuleList(rates),
        }
    ).train()
    wanted = [
        ("drop", "p", 0.5),
        ("attn", "dropout", 0.1),
        ("lstm", "dropout", 0.3),
        ("path", "drop_prob", 0.2),
        ("rates.0", "p", 0.25),
        ("rates.1", "p", 0.25),
    ]
    x = torch.randn(2, 3, 4)
    with without_dropout(net.named_modules()) as dropouts:
        assert dropouts == wanted
        for layer in (net["drop"], *rates):
            assert torch.equal(layer(x), x)
        assert torch.equal(net["attn"](x, x, x)[0], net["attn"](x, x, x)[0])
        assert torch.equal(net["lstm"](x)[0], net["lstm"](x)[0])
    for path, name, rate in wanted:
        assert getattr(net.get_submodule(path), name) == rate
    assert not torch.equal(net["drop"](x), x)


BATCHES = make_batches(2, 8, 3, 12, 5)


@pytest.mark.parametrize("way", ["zeros", "float", "constant", "refused"])
def test_modules_making_float32_inside_run_in_float64(way):
    def forward(self, x):
        x = x.flatten(2)[:, :, :36]
        if way == "float":
            x = x.float() / 255
        if way == "constant":
            x = x @ self.constant
        if way == "refused" and x.dtype != torch.float32:
            raise TypeError("float32 only")
        zeros = torch.zeros(1, len(x), 5, dtype=None if way == "zeros" else torch.float32)
        return self.lstm(x, (zeros, zeros))[0][:, -1]

    net = module(forward, lstm=t.LSTM(36, 5, batch_first=True), constant=torch.randn(36, 36))
    if way == "refused":
        error = r"test_torch_side.py:\d+: raise TypeError.*float64.*dtype=x.dtype"
        with pytest.raises(ValueError, match=error):
            traced(net, BATCHES)
        return
    rounding = traced(net, BATCHES).rounding
    assert 1e-9 < rounding[EVAL_FORWARD]["logits"] < 1e-4
    assert 1e-9 < rounding[GRADIENTS]["lstm.weight_ih_l0"] < 1e-4
    assert torch.get_default_dtype() == torch.float32


def test_fresh_statistics_are_drawn_and_trained_ones_kept():
    fresh, trained = t.BatchNorm2d(8), t.BatchNorm2d(8)
    trained.running_mean += 3
    trained.weight.data += torch.arange(8.0)
    gamma = trained.weight.detach().clone()
    prepare_reference(t.Sequential(t.Conv2d(3, 8, 3), fresh, trained), BATCHES[0][0], 0)
    assert fresh.running_mean.abs().min() > 0
    assert fresh.weight.min() > 0.4
    assert fresh.weight.unique().numel() == 8
    assert fresh.momentum == 0.1
    assert torch.equal(trained.weight, gamma)


def test_trained_constants_get_noise_frozen_ones_are_kept():
    net = t.Linear(400, 300)
    net.gate, net.scale = t.Parameter(torch.zeros(500)), t.Parameter(torch.full((400,), 1e-6))
    net.table = t.Parameter(torch.zeros(4, 4), requires_grad=False)
    t.init.zeros_(net.weight)
    t.init.zeros_(net.bias)
    words = prepare_reference(net, np.zeros((1, 400), np.float32), 0)
    numbers = "random numbers for 4 constant arrays of the reference"
    assert words == f"{numbers}: weight, bias, gate and 1 more"
    assert 0.2 <= net.scale.min() < net.scale.max() <= 0.8
    assert abs(float(net.weight.detach().std()) * 400**0.5 - 1) < 0.02
    assert abs(float(net.gate.detach().std()) / 0.2 - 1) < 0.1
    assert net.bias.detach().std() > 0.1
    assert not net.table.any()


def test_arrays_the_optimizers_function_freezes_have_no_gradient():
    net = t.Sequential(t.Conv2d(3, 4, 3), t.Dropout(0.5), t.Flatten(), t.Linear(400, 5))

    def make_optimizer(module):
        module[0].requires_grad_(False)
        return torch.optim.SGD(module[3].parameters(), 0.1)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    recording = traced(net, BATCHES, make_optimizer=make_optimizer)
    assert [*recording.run.gradients] == list(recording.trainable) == ["3.weight", "3.bias"]
    assert torch.equal(torch.get_rng_state(), before)


RELUS = {
    "torch.relu": torch.relu,
    "functional": t.functional.relu,
    "layer": t.ReLU(),
    "layer in place": t.ReLU(inplace=True),
    "method": torch.Tensor.relu,
    "relu6": t.functional.relu6,
    "hardtanh": t.Hardtanh(0.0, 6.0),
}


@pytest.mark.parametrize("kind", RELUS)
def test_flipped_ties_take_a_relus_other_side(kind):
    """And one near 6, where that is a limit."""
    relu, limited = RELUS[kind], kind in ("relu6", "hardtanh")
    numbers = [1e-7, -1e-7, 1.0, -1.0, 6.0 - 1e-7, 9.0]
    x = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    with flip_ties(2.0, [1e-6 / 8]) as count:
        out = relu(x * 1.0)
        out.sum().backward()
    slope = float(not limited)
    assert (count(), x.grad.tolist()) == (2 + limited, [0.0, 1.0, 1.0, 0.0, slope, slope])
    right = [0.0, -1e-7, 1.0, 0.0, 6.0, 6.0 if limited else 9.0]
    assert out.tolist() == pytest.approx(right, abs=2e-7)
    assert torch.relu(x[:4]).tolist() == [1e-7, 0.0, 1.0, 0.0]  # outside, all is as before


def climb(fault=1.0, rows=6, zeros=3, compare=ladder_of):
    """Of a port that adds 1e-12 to what the ReLU is given, and whose gradient there is `fault`
    times as large.

    Of so many samples the ReLU's inputs are 0 to the last bit in PyTorch.
    """

    def construct(self, x):
        x = self.part(x)
        x = x * fault + ops.stop_gradient(x * (1.0 - fault))
        return self.head(ops.relu(x + 1e-12))

    module = theirs_of(lambda n, x: n.head(torch.relu(n.part(x))))
    t.init.zeros_(module.part.bias)
    module.part.bias.data[0] = -1e-20  # else it is one number, which is replaced by random ones
    batches = [(draw(rows, 8), labels(rows)) for _ in range(2)]
    for inputs, _ in batches:
        inputs[:zeros] = 0
    net = ours_of(construct)
    return compare(net, module, batches, SGD, initialisation=False, quick=True, mode="pynative")


def test_few_undecided_relu_sides_count_as_rounding():
    ladder = climb(rows=2000, zeros=1)
    assert ladder.agrees, table(ladder)
    # batches · evaluation and training · units; the bias moves in update 1
    assert ladder.ties == 2 * 2 * 8
    assert "float32 cannot say on which side of 0 32 inputs of a ReLU lie" in table(ladder)


def test_many_undecided_relu_sides_decide_nothing():
    with pytest.raises(AssertionError, match=r"^the net may differ from the reference") as error:
        climb(compare=assert_parity)
    error.match("float32 cannot say on which side of 0 96 inputs of a ReLU lie")
    error.match(r"\n  gradients: part.bias: a relative rounding error of 0.\d+ in the ref")


def test_a_wrong_gradient_beside_ties_is_found():
    ladder = climb(fault=2.0)
    assert title_of_stage(ladder.first_stage) == "gradients"
    # by a factor of 2; the bias' gradient could be anything
    assert ladder.first_gradient.name == "part.weight"
    assert ladder.first_gradient.verdict == "DIFFERS"


# The bound of what Adam has trained: it divides even a gradient that is rounding by its own size.
ADAM = recipe("digits").changed(optimizer="adamw", nesterov=False, learning_rate=1e-3)


def block():
    """The gradient of a bias before BatchNorm is rounding; the statistics follow the bias."""
    return [t.LazyConv2d(8, 3, padding=1), t.BatchNorm2d(8), t.ReLU()]


def test_another_order_within_a_batch_agrees():
    """Sums over a batch round otherwise then.

    In torch alone, both trainings are as far apart as is allowed.
    """
    net = t.Sequential(*block(), *block(), t.Flatten(), t.LazyLinear(4))
    batches = make_batches(5, 16, 1, 8, 4, 0)
    recording = traced(net, batches, use=ADAM)
    trained, bounds = recording.run, recording.rounding

    def bound(stage, name):
        return max(1e-4, ROUNDING_FACTOR * bounds[stage][name])

    for seed in range(2):
        order = np.random.default_rng(seed).permutation(16)
        shuffled = [(images[order], labels[order]) for images, labels in batches]
        again = traced(net, shuffled, use=ADAM).run.after[-1]
        errors = {
            name: relative_error(again[name], value) for name, value in trained.after[-1].items()
        }
        assert errors["4.running_mean"] > 1e-4  # further than the tolerance
        for name, error in errors.items():
            assert error <= bound(LAST, name), name
        # as the ladder has them there
        weights = {name: trained.after[-1][name] for name in trained.gradients}
        state = {name: torch.from_numpy(array) for name, array in (again | weights).items()}
        other = copy.deepcopy(net).eval()
        other.load_state_dict(state, strict=False)
        outputs = other(torch.from_numpy(batches[0][0])).detach().numpy()
        error = relative_error(outputs, trained.last_outputs["logits"])
        assert error <= bound(CHANGED_BUFFERS, "logits")


def test_drift_is_measured_on_the_trained_module():
    def refuses(module):
        assert (torch.full((99,), 0.3) + 0.3 == 0.6).all(), "noise"
        return torch.optim.Adam(module.parameters())

    net = t.Sequential(*block(), t.Flatten(), t.LazyLinear(4))
    net[1].register_buffer("running_var", torch.ones(8), persistent=False)
    batches, use = make_batches(2, 16, 1, 8, 4, 0), ADAM.changed(learning_rate=1e-6)
    assert traced(net, batches, use=use).rounding[CHANGED_BUFFERS]["logits"] < 1e-4
    notes = traced(net, batches, None, refuses, use=use).notes
    assert any("under noise failed (AssertionError: noise)" in note for note in notes)


def test_integers_whose_runs_under_noise_fail_are_noted():
    def forward(self, x):
        x = self.head(self.part(x))
        return x, x.argmax(-1)

    def loss(outputs, labels):
        assert (torch.full((99,), 0.3) + 0.3 == 0.6).all(), "noise"
        return t.functional.cross_entropy(outputs[0], labels.long())

    net = theirs_of(forward)
    trace = traced(net, vectors(), loss)
    (note,) = [note for note in trace.notes if note.startswith("which integers")]
    assert "measured with 1 of 5 further runs" in note
    assert "(AssertionError: noise)" in note


def lines_of_scale(forward):
    """What the trace says of a buffer of ones, and whether random numbers replaced it."""
    net = theirs_of(forward, scale=t.Buffer(torch.ones(6)))
    trace = traced(net, [vector()])
    return [line for line in trace.limits if "scale" in line], bool(trace.run.drawn)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ("finite", ""),
        ("always infinite", ""),
        ("infinite with random numbers", "its outputs are not finite"),
        ("wider with random numbers", "its outputs have another shape"),
    ],
)
def test_constants_that_spoil_outputs_are_skipped(outputs, words):
    def forward(self, x):
        x = self.head(self.part(x))
        if outputs == "always infinite":
            x = x.masked_fill(torch.tensor([False, False, True]), -np.inf)
        if outputs == "infinite with random numbers":
            return x * torch.exp(1e4 * (self.scale - 1)).max()
        if outputs == "wider with random numbers" and (self.scale != 1).any():
            return torch.cat([x, x / 0], 1)
        return x * self.scale.mean()

    line = f"random numbers for constant arrays (scale): {words}"
    assert lines_of_scale(forward) == (([line], False) if words else ([], True))


def test_later_batches_keep_decisions_where_a_buffer_moves():
    """0.7 · 10 is 7 in float32, but less in float64."""

    def forward(self, x):
        if self.training:
            self.center.mul_(0.5).add_(0.3)
        tens = (x[:, :1] * 10).long()
        return self.head(self.part(x)) + tens + 1e-3 * self.center

    net = theirs_of(forward, center=t.Buffer(torch.zeros(())))
    batches = [(np.full((6, 8), number, np.float32), labels(6)) for number in (0.55, 0.7)]
    trace = traced(net, batches)
    assert trace.run.moved == {"center": "evaluation"}
    later = dataclasses.replace(EVAL_FORWARD, batch=2)
    assert trace.rounding[later]["logits"] < 1e-5


@pytest.mark.parametrize("failing", ["float32", "float64"])
def test_a_run_that_rejects_constants_is_named(failing):
    runs = []

    def forward(self, x):
        if (self.scale != 1).any():
            runs.append(x.dtype)
            third = len(runs) == 3  # two passes show whether the module runs with them at all
            assert not (third if failing == "float32" else x.dtype == torch.float64), "refused"
        return self.head(self.part(x)) * self.scale.mean()

    (line,), _ = lines_of_scale(forward)
    assert line.endswith(f"(scale): it fails in {failing} (AssertionError: refused)")


def stepper_of(module, batches, loss, clip_norm, **options):
    plan = plan_of(ADAMW.changed(clip_norm=clip_norm), batches)
    training = Training(plan, loss, None, lambda module: contextlib.nullcontext())
    return TorchStepper(module, training, "float64", **options)


def batch_of_longs():
    return draw(6, 8), labels(6).astype(np.int64)


@pytest.mark.parametrize("clip_norm", [0, 1e-3])
def test_gradients_are_measured_unclipped_and_uncopied(clip_norm):
    """In float64 they take twice the memory of the weights; clipping writes into them."""
    norms, owned = [], set()

    def measure(gradients):
        norms.append(np.sqrt(sum(np.square(gradient).sum() for gradient in gradients.values())))
        owned.update(gradient.flags.owndata for gradient in gradients.values())

    arguments = Theirs(t.Linear(8, 8)), [batch_of_longs()], t.functional.cross_entropy, clip_norm
    with in_mode("float64"):
        step = stepper_of(*arguments, measure=measure).update(0, 0.1)
        whole = stepper_of(*arguments).update(0, 0.1)
    assert norms == pytest.approx([step.norm])
    assert not step.gradients
    owned |= {array.flags.owndata for array in step.clipped.values()}
    assert owned == {False}
    factor = min(1.0, clip_norm / step.norm) if clip_norm else 1.0
    for name, array in whole.clipped.items():
        assert np.allclose(array, whole.gradients[name] * factor, rtol=1e-5)
        assert (step.clipped[name] == array).all()


def test_infinite_gradients_leave_others_as_they_are():
    """Clipping multiplies all by 1 / ∞."""

    def forward(net, x):
        return net.head(x) + net.part.weight.sum() * torch.zeros(()).sqrt()

    def loss(outputs, labels):
        return t.functional.cross_entropy(outputs, labels) + torch.sqrt(0 * module.part.bias.sum())

    with in_mode("float64"):
        stepper = stepper_of(theirs_of(forward), [batch_of_longs()], loss, 1.0)
        module = stepper._run.module
        gradients = stepper.update(0, 0.1).gradients
    assert not np.isfinite(gradients["part.bias"]).all()
    assert np.isfinite(gradients["head.weight"]).all()


def test_an_optimizer_of_other_arrays_is_rejected():
    """Such as those of a loss: nothing that is compared shows what it does with them."""
    weights = t.Parameter(torch.zeros(3))

    def optimizer(module):
        return torch.optim.SGD([*module.parameters(), weights], 0.1)

    message = r"updates an array \[3\] that is no parameter of the net; make it one"
    with pytest.raises(ValueError, match=message):
        traced(Theirs(t.ReLU()), [vector()], None, optimizer)


def test_a_forward_of_c_code_has_no_signature():
    module = t.Identity()
    module.forward = torch.tanh
    assert not_given(module, (torch.ones(4, 8),)) == []


def test_an_overflow_in_float32_alone_has_a_rounding():
    """A mask added twice is −infinity in float32, and a number in float64."""

    def forward(self, x):
        lowest = torch.tensor([0.0, torch.finfo(torch.float32).min])
        return (x + lowest) + lowest

    net = t.Sequential(module(forward), t.Softmax(-1)).eval()
    inputs = np.float32([[1, 2], [3, 4]])
    mask, _ = layers_with_rounding(net, inputs, False, "float32")[0][:2]
    assert np.isinf(mask.output).any()
    assert mask.output_rounding < 1e-6
