"""Stages: rounding, differences, and stages that are skipped with a note."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity import stages
from resnet_fn.parity.initial import initial_stage
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.layer_outputs import LayerDifference, tie_width
from resnet_fn.parity.layers.difference import difference, relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.name_map import MadeOf, NameMap, Part, whole_array
from resnet_fn.parity.replay import assert_parity, compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.stages import Stage, inputs_stage
from resnet_fn.parity.trace import Recording, Task, Trace, flip_widths, make_batches
from resnet_fn.recipes import recipe

pytestmark = pytest.mark.usefixtures("device")

RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)
TASK = Task(recipe("digits"), make_batches(2, 4, 1, 2, 3))
NAMES = NameMap("names", {"w": whole_array("theirs.w"), "mean": whole_array("theirs.mean")}, {}, ())


def traces(**apart: float) -> tuple[Trace, Trace, Trace]:
    """MindSpore's side, PyTorch's and its float64 values; `apart` shifts MindSpore's, PyTorch's is off by 1e-3."""

    def trace(shift: float, side: dict[str, float], prefix: str) -> Trace:
        def values(field: str, size: int = 4) -> np.ndarray:
            return np.ones(size) * (1 + shift) * (1 + side.get(field, 0.0))

        w, mean = prefix + "w", prefix + "mean"
        return Trace(
            eval_outputs={"logits": values("eval_outputs")},
            start={w: np.full(4, 0.5), mean: np.zeros(4)},
            rates=[0.1, 0.2],
            after=[{w: values("after"), mean: values("after")}],
            train_outputs=[{"logits": values("train_outputs")}, {"logits": values("train_outputs")}],
            losses=[float(values("losses")[0]), float(values("losses")[0])],
            norms=[2.0, 2.0],
            gradients={w: values("gradients")},
            clipped={w: values("gradients")},
        )

    return trace(0.0, apart, ""), trace(1e-3, {}, "theirs."), trace(0.0, {}, "theirs.")


def compared(
    ours: Trace, theirs: Trace, *others: Trace, order: Sequence[str] = ("w", "mean"), task: Task = TASK
) -> dict[str, Stage]:
    """The stages by name; `others` are the reference in float64 and with flipped ties; none: without rounding."""
    exact = others[:1]
    rounding = stages.worst_rounding(*(stages.rounding(one, *exact) for one in (theirs, *others[1:]))) if exact else {}
    sides = [Recording("", task, {}, {}, trace) for trace in (ours, theirs)]
    return {stage.name: stage for stage in stages.Comparison(*sides, NAMES, rounding).all_stages(order)}


def test_the_rounding_of_the_reference_is_allowed_and_more_is_a_difference():
    # MindSpore's eval outputs are 1.0 · (1 + 2e-3): 1e-3 from the reference, which is 1e-3 from float64.
    by_name = compared(*traces(eval_outputs=2e-3, gradients=1e-2))
    verdicts = {"weights": "ok", "eval forward": "rounding", "gradients": "DIFFERS", "learning rate": "ok"}
    assert {name: by_name[name].verdict for name in verdicts} == verdicts
    assert [item.name for item in by_name["learning rate"].differences] == ["update 1", "update 2"]
    assert [item.name for item in by_name["BatchNorm statistics after update 1"].differences] == ["mean"]


def test_a_loss_counts_at_least_what_its_outputs_are_off_by():
    ours, theirs, exact = traces(losses=5e-4)
    theirs.losses = exact.losses  # close to float64 by luck
    stage = compared(ours, theirs, exact)["loss"]
    assert (stage.verdict, stage.differences[0].rounding) == ("rounding", pytest.approx(1e-3))
    theirs.train_outputs = exact.train_outputs
    assert compared(ours, theirs, exact)["loss"].verdict == "DIFFERS"


def test_a_loss_trajectory_is_followed_as_far_as_the_reference_is_sure():
    ours, theirs, exact = traces()
    for trace, losses in ((ours, [1, 1, 1.2, 1.3]), (theirs, [1, 1, 1.1, 1.2]), (exact, [1, 1, 1.001, 1.0])):
        trace.losses, trace.train_outputs = losses, []
    stage = compared(ours, theirs, exact)["loss trajectory"]
    assert (stage.verdict, [item.name for item in stage.differences]) == ("ok", ["update 1", "update 2"])
    assert stage.note.startswith("without 2 from update 3 on: the reference itself is 0.099 of its size away from ")
    ours.losses[3] = 2.5  # further than that
    assert compared(ours, theirs, exact)["loss trajectory"].first.name == "update 4"


def test_what_flipped_ties_change_is_rounding():
    ours, theirs, exact = traces(gradients=1e-2)
    flipped = traces()[2]
    flipped.gradients = {"theirs.w": np.full(4, 1.01)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "DIFFERS"
    assert compared(ours, theirs, exact, flipped)["gradients"].verdict == "rounding"


def test_a_gradient_that_is_zero_except_for_rounding_must_be_small():
    ours, theirs, exact = traces()
    for trace, noise in ((ours, 3e-9), (theirs, -2e-9), (exact, 1e-25)):
        prefix = "" if trace is ours else "theirs."
        trace.gradients = {prefix + "w": np.ones(4), prefix + "mean": np.full(4, noise)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "ok"  # beside all gradients
    ours.gradients["mean"] = np.full(4, 1e-3)  # no rounding of gradients of size 1
    stage = compared(ours, theirs, exact)["gradients"]
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "mean")


def test_a_gradient_that_noise_changes_by_half_is_rounding_though_its_float64_is_close_by_luck():
    ours, theirs, exact = traces()
    for trace, tiny in ((ours, -1.5e-8), (theirs, -2.2e-8), (exact, -2.19e-8)):
        prefix = "" if trace is ours else "theirs."
        trace.gradients = {prefix + "w": np.ones(4), prefix + "mean": np.full(4, tiny)}
    measured, sides = stages.rounding(theirs, exact), [Recording("", TASK, {}, {}, one) for one in (ours, theirs)]
    for spread, verdict in ((0.15, "ok"), (0.01, "DIFFERS")):  # of the gradient, in a run with noise
        known = stages.with_noise(measured, [{"gradients": {"theirs.mean": spread}}])
        found = stages.Comparison(*sides, NAMES, known).all_stages(("w", "mean"))
        assert next(stage for stage in found if stage.name == "gradients").verdict == verdict


def test_a_part_is_lent_no_more_of_the_wholes_rounding_than_its_tolerance():
    ours, theirs, _ = traces()
    for trace, name, gradient in ((ours, "q", np.full(4, 1.02e-4)), (theirs, "w", np.repeat([1e-4, 1.0], [4, 8]))):
        trace.gradients = trace.clipped = {name: gradient}
        trace.start, trace.after = {name: np.zeros_like(gradient)}, [{name: np.zeros_like(gradient)}]
    sides = [Recording("", TASK, {}, {}, trace) for trace in (ours, theirs)]
    names = NameMap("names", {"q": MadeOf((Part("w", share=(0, 3)),))}, {}, ())
    compared = stages.Comparison(*sides, names, {"gradients": {"w": 1e-6}}).all_stages(["q"])
    assert next(stage for stage in compared if stage.name == "gradients").verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("noise", "own", "verdict"),
    [(3e-9, 1e-11, "ok"), (-2e-8, 1e-11, "ok"), (1e-3, 1e-11, "DIFFERS"), (1e-6, 1e-6, "ok")],
)
def test_the_key_bias_of_an_attention_that_adam_trains(noise, own, verdict):
    """Its gradient is zero except for rounding; Adam divides it by its own size: a step of up to the rate's."""
    ours, theirs, exact = traces()
    for trace, rounded in ((ours, noise), (theirs, own), (exact, own if noise == own else 1e-18)):
        w, bias = trace.start
        gradient = np.repeat([0.3, rounded, -0.2], 4)  # of the biases of q, k and v in one array
        trace.start = {w: np.full(4, 0.5), bias: np.full(12, 0.1)}
        trace.gradients = trace.clipped = {w: np.ones(4), bias: gradient}
        steps = {w: np.full(4, 1e-3), bias: 1e-3 * gradient / (np.abs(gradient) + 1e-8)}
        trace.after = [{name: trace.start[name] - step for name, step in steps.items()}]
    adam = dataclasses.replace(RECIPE, optimizer="adam", nesterov=False)
    by_name = compared(ours, theirs, exact, task=dataclasses.replace(TASK, recipe=adam))
    assert by_name["gradients"].verdict == verdict
    if verdict == "ok":
        assert by_name["change by update 1"].verdict == verdict
        ours.after[0]["mean"][4:8] += 1e-3
        change = compared(ours, theirs, exact, task=dataclasses.replace(TASK, recipe=adam))["change by update 1"]
        assert change.verdict == ("DIFFERS" if noise == own else "ok")
        ours.after[0]["mean"] += 2e-3  # more than any step
        assert compared(ours, theirs, exact)["change by update 1"].verdict == "DIFFERS"


def test_a_change_below_the_last_place_of_its_weight_is_compared_with_all_changes():
    """1 unit of 2^-25 here, 2 there: all that the weight 0.5 can hold of such a change."""
    ours, theirs, exact = traces()
    for trace, units in ((ours, 2), (theirs, 1), (exact, 1)):
        w, mean = trace.start
        trace.start = {w: np.full(4, 0.5), mean: np.zeros(4)}
        trace.after = [{w: np.full(4, 0.5 + units * 2**-25), mean: np.full(4, 1e-3)}]
        trace.gradients = {w: np.ones(4), mean: np.ones(4)}
    stage = compared(ours, theirs, exact)["change by update 1"]
    assert (stage.verdict, stage.differences[0].relative) == ("rounding", pytest.approx(2**-25 / 1e-3, rel=0.01))
    ours.after[0]["w"] = np.full(4, 0.5 + 6 * 2**-25)
    assert compared(ours, theirs, exact)["change by update 1"].verdict == "DIFFERS"
    for trace in (ours, theirs, exact):
        trace.gradients.popitem()  # w is all that changes
    ours.after[0]["w"] = np.full(4, 0.5 + 2 * 2**-25)
    assert compared(ours, theirs, exact)["change by update 1"].verdict == "undecided"


def test_without_float64_only_the_tolerance_counts():
    by_name = compared(*traces(eval_outputs=1e-3 + 5e-6)[:2])
    assert (by_name["eval forward"].verdict, by_name["train forward"].verdict) == ("ok", "DIFFERS")


def test_arrays_that_a_side_does_not_have_are_skipped_with_a_note():
    ours, theirs, exact = traces()
    by_name = compared(ours, theirs, exact, order=["w"])
    later, statistics = by_name["weights after update 2"], by_name["BatchNorm statistics after update 1"]
    assert {later.verdict, statistics.verdict} == {"skipped"}
    assert statistics.note == "there are none"
    assert "momentum" in later.note


def test_outputs_of_another_shape_or_number_differ():
    ours, theirs, exact = traces()
    ours.eval_outputs = {"logits": np.ones(5)}
    ours.train_outputs = [{"logits 0": np.ones(4), "logits 1": np.ones(4)}] * 2
    by_name = compared(ours, theirs, exact)
    assert by_name["eval forward"].failed == "logits [5] here, logits [4] in the reference"
    assert by_name["train forward"].failed == "logits 0 [4], logits 1 [4] here, logits [4] in the reference"


def test_inputs_are_compared_bit_for_bit_and_by_name():
    first, (images, labels) = batches = TASK.batches
    assert inputs_stage(batches, batches).verdict == "ok"
    stage = inputs_stage([first, (np.nextafter(images, np.float32(9)), labels)], batches)
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "inputs of update 2")
    stage = inputs_stage([({"a": images}, labels)], [({"b": images}, labels)])
    assert (stage.verdict, stage.failed) == ("DIFFERS", "update 1: the inputs have other names or shapes")


UNIFORM = 3**0.5  # a uniform draw between ± this has standard deviation 1


def drawn(kind: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {
        "normal": rng.normal(0, 1, (50, 40)),
        "uniform": rng.uniform(-UNIFORM, UNIFORM, (50, 40)),
        "wide": rng.normal(0, 1.3, (50, 40)),
        "shifted": rng.normal(0.3, 1, (50, 40)),
    }
    return {"fc.weight": weights[kind], "fc.gamma": np.ones(40), "fc.few": rng.normal(size=4)}


@pytest.mark.parametrize("kind", ["normal", "uniform", "wide", "shifted"])
def test_two_draws_of_one_distribution_agree(kind):
    for seed in range(100):
        assert initial_stage([drawn(kind, seed)], [drawn(kind, 1000 + seed)]).verdict == "ok"


@pytest.mark.parametrize(("kind", "moment"), [("uniform", "kurtosis"), ("wide", "std"), ("shifted", "mean")])
def test_the_moment_that_differs_is_named(kind, moment):
    for seed in range(20):
        stage = initial_stage([drawn(kind, seed)], [drawn("normal", 1000 + seed)])
        assert (stage.verdict, stage.first.name) == ("DIFFERS", f"fc.weight {moment}")
        assert stage.hints[0].startswith("fc.weight: drawn in ")


def test_each_block_of_rows_of_an_array_is_compared_separately():
    rng = np.random.default_rng(0)
    theirs = rng.normal(size=(96, 32))
    ours = rng.normal(size=(96, 32)) * np.repeat([1, 1.3, 1], 32)[:, None]
    stage = initial_stage([{"qkv": ours}], [{"qkv": theirs}])
    assert [hint.partition(": ")[0] for hint in stage.hints] == ["qkv rows 32:64"]


RELUS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "torch.relu": lambda torch: torch.relu,
    "functional": lambda torch: torch.nn.functional.relu,
    "layer": lambda torch: torch.nn.ReLU(),
    "layer in place": lambda torch: torch.nn.ReLU(inplace=True),
    "method": lambda torch: torch.Tensor.relu,
    "relu6": lambda torch: torch.nn.functional.relu6,
    "hardtanh": lambda torch: torch.nn.Hardtanh(0.0, 6.0),
}


@pytest.mark.parametrize("kind", list(RELUS))
def test_an_input_near_zero_takes_the_other_side(torch, kind):
    """And one near 6, where that is a limit."""
    from resnet_fn.parity.torch_side import FlipTies

    relu, limited = RELUS[kind](torch), kind in ("relu6", "hardtanh")
    x = torch.tensor([1e-7, -1e-7, 1.0, -1.0, 6.0 - 1e-7, 9.0], dtype=torch.float64, requires_grad=True)
    with FlipTies(1e-6) as ties:
        out = relu(x * 1.0)
        out.sum().backward()
    slope = float(not limited)
    assert (ties.count, x.grad.tolist()) == (2 + limited, [0.0, 1.0, 1.0, 0.0, slope, slope])
    assert out.tolist() == pytest.approx([0.0, -1e-7, 1.0, 0.0, 6.0, 6.0 if limited else 9.0], abs=2e-7)
    assert torch.relu(x[:4]).tolist() == [1e-7, 0.0, 1.0, 0.0]  # outside, all is as before


def test_a_tie_is_as_wide_as_four_times_the_largest_error_in_training_mode():
    def layer(mode, ours, exact):
        output = difference("x", [ours], [1.0], rounding=relative_error(1.0, exact))
        return LayerDifference(mode, "x", "x", output, None, ())

    assert tie_width([]) == 0
    layers = [layer("eval", 1.5, 1.0), layer("train", 1 + 1e-6, 1.0), layer("train", 1.0, 1 / (1 + 2e-6))]
    assert tie_width(layers) == pytest.approx(4 * 2e-6)
    # A layer that overflows in float32, as masked scores do, is no measure of the others.
    assert tie_width([*layers, layer("train", 1.0, np.inf)]) == tie_width(layers)
    recorded = [Layer("x", 0, "", "", {}, None, None, (), True, 0.0, error) for error in (1e-6, np.inf)]
    assert max(flip_widths(recorded)) == pytest.approx(4 * 32 * 1e-6)


class Ported(nn.Cell):
    """Computes the same except for what float32 cannot hold: it adds 1e-12 to what the ReLU is given."""

    def __init__(self, fault=1.0):
        super().__init__()
        self.first = nn.Dense(8, 8)
        self.last = nn.Dense(8, 3)
        self.fault = fault

    def construct(self, x):
        x = self.first(x.reshape((x.shape[0], -1)))
        # The values are those of x, its gradient is `fault` times as large.
        x = x * self.fault + ops.stop_gradient(x * (1.0 - self.fault))
        return self.last(ops.relu(x + 1e-12))


@pytest.fixture
def climb(torch) -> Callable[..., Ladder]:
    """climb(net, rows, zeros): its ladder; of so many samples' ReLU inputs are 0 to the last bit in PyTorch."""

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 8)
            torch.nn.init.zeros_(self.first.bias)
            self.first.bias.data[0] = -1e-20  # else it is one number, which is replaced by random ones
            self.last = torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.last(torch.relu(self.first(x.flatten(1))))

    rng = np.random.default_rng(0)

    def climbed(net: nn.Cell, rows: int = 6, zeros: int = 3, compare: Callable[..., Ladder] = compare_step) -> Ladder:
        images = rng.standard_normal((rows, 2, 2, 2)).astype(np.float32)
        images[:zeros] = 0  # these samples' ReLU inputs are exactly 0 there, 1e-12 here
        batches = [(images, rng.integers(0, 3, rows).astype(np.int32)) for _ in range(2)]
        return compare(net, Reference(), batches, RECIPE, initialisation=False, quick=True, mode="pynative")

    return climbed


def test_sides_that_float32_cannot_decide_are_rounding_while_they_are_few(climb):
    ladder = climb(Ported(), 2000, 1)
    assert ladder.agrees, table(ladder)
    assert ladder.ties == 2 * 2 * 8  # batches · evaluation and training · units; the bias moves in update 1
    assert "float32 cannot say on which side of 0 32 inputs of a ReLU lie" in table(ladder)


def test_where_they_are_many_nothing_is_decided(climb):
    with pytest.raises(AssertionError, match=r"^it is undecided whether the net computes") as error:
        climb(Ported(), compare=assert_parity)
    assert "float32 cannot say on which side of 0 96 inputs of a ReLU lie" in str(error.value)
    assert "\n  gradients: first.bias: the reference itself is 0.77 of its size away from " in str(error.value)


def test_a_wrong_gradient_beside_them_is_found(climb):
    ladder = climb(Ported(fault=2.0))
    assert ladder.first_stage.name == "gradients"
    assert ladder.first_gradient.name == "first.weight"  # by a factor of 2; the bias' gradient could be anything
    assert ladder.first_gradient.verdict == "DIFFERS"
