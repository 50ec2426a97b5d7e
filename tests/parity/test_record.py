"""What `record` promises of either side: the weights stay, and each field of a trace is filled."""

import dataclasses
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.pair.like import like_of
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.passes import output_in_training
from resnet_fn.parity.record.record import record
from resnet_fn.parity.record.responses import measured_branch
from resnet_fn.parity.record.side import Step
from resnet_fn.parity.record.updates import Watch, record_updates
from resnet_fn.parity.replay import names_of
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.update.step import make_train_step
from small_nets import ADAMW, Ours, Theirs, draw, record_reference, t, torch

pytestmark = pytest.mark.usefixtures("device")

BATCHES = [(draw(4, 8), np.array([0, 1, 2, 0], np.int32)) for _ in range(2)]
RECIPE = dataclasses.replace(ADAMW, clip_norm=0.1, ema=0.9, ema_warmup=False)
FILLED_ELSEWHERE = {"file", "workers", "flipped"}
OF_REFERENCE = {"rounding", "limits"}
OF_CUSTOM_FUNCTIONS = {"losses_alone", "optimizer_alone", "optimizer_settings"}
OF_ODD_NETS = {"ties", "kernels", "tied", "constants", "random_train", "random_eval", "changing"}
OF_ODD_NETS |= {"unread", "attributes", "buffers", "unmasked"}


def reference() -> Any:
    class Limited(Theirs):
        def forward(self, x: Any) -> Any:
            return super().forward(x).clamp(max=1e3)

    return Limited(t.BatchNorm1d(8), t.Dropout(0.5))


def port() -> Ours:
    return Ours(nn.BatchNorm1d(8), nn.Dropout(p=0.5))


def values_of(net: nn.Cell) -> dict[str, np.ndarray]:
    return {name: one.numpy().copy() for name, one in net.parameters_and_names()}


@pytest.fixture(scope="module")
def recorded() -> tuple[Recorded, Recorded, Any, nn.Cell]:
    """The reference's and the port's recording, their names, and the port."""
    from resnet_fn.parity.record.torch_side import TorchSide

    module, net, plan = reference(), port(), plan_of(RECIPE, BATCHES)
    before = {name: one.clone() for name, one in module.state_dict().items()}
    theirs = record(TorchSide(module, plan, build=reference))
    for name, one in module.state_dict().items():
        assert torch.equal(one, before[name]), name
    side = MindSporeSide(net, theirs.trace.plan, build=port)
    names = names_of(side, theirs.trace)
    ours = record(side, like_of(theirs.trace, names, False))
    return theirs, ours, names, net


def test_the_port_keeps_the_weights_it_began_with(recorded):
    theirs, ours, names, net = recorded
    start = names.rename(theirs.trace.run.start)
    values = values_of(net)
    assert start.keys() == values.keys() == ours.trace.run.start.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(value, start[name])
        np.testing.assert_array_equal(value, ours.trace.run.start[name])
    assert any((one != start[name]).any() for name, one in ours.trace.run.after[0].items())


@pytest.mark.parametrize("of_reference", [True, False])
def test_record_fills_every_field(recorded, of_reference):
    trace = recorded[0 if of_reference else 1].trace
    empty = FILLED_ELSEWHERE | OF_ODD_NETS
    empty |= set() if of_reference else OF_REFERENCE | OF_CUSTOM_FUNCTIONS
    for field in dataclasses.fields(Trace):
        if field.name not in empty:
            assert getattr(trace, field.name), field.name
    assert trace.layers.keys() == {"eval", "train", "dropout"}
    for name in ("later", "dropped", "average", "last_outputs", "clipped"):
        assert getattr(trace.run, name), name


def test_losses_and_optimizers_of_the_user_run_alone(recorded):
    net = port()
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    side = MindSporeSide(
        net, recorded[0].trace.plan, loss=nn.CrossEntropyLoss(), optimizer=optimizer
    )
    like = like_of(recorded[0].trace, names_of(side, recorded[0].trace), True)
    trace = record(side, like, probes=False).trace
    assert all(getattr(trace, name) for name in OF_CUSTOM_FUNCTIONS)
    assert trace.probes == {}


def of_pairs(outputs: Any, labels: Any) -> Any:
    assert len(outputs) > 1, "no pair"
    return (outputs[:1] - outputs[1:]).square().mean()


@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_losses_alone_that_the_reference_rejects_are_named(framework):
    plan = plan_of(RECIPE, BATCHES, custom_loss=True)
    if framework == "torch":
        trace = record_reference(reference(), plan, of_pairs, probes=False)
    else:  # a port recorded as the reference of later ones, which keeps its weights
        net = port()
        before = values_of(net)
        trace = record(MindSporeSide(net, plan, loss=of_pairs), probes=False).trace
        for name, value in values_of(net).items():
            np.testing.assert_array_equal(value, before[name])
    assert {case.samples for case in trace.losses_alone} == {4, 8}
    (line,) = [line for line in trace.limits if line.startswith("loss alone")]
    cases = ", ".join(f"1 samples, outputs × {times}" for times in (1, 10, 100))
    assert line == f"loss alone: the reference's fails on {cases} (AssertionError: no pair)"


def test_a_net_whose_step_fails_keeps_its_weights():
    def failing(*given: Any, **options: Any) -> Any:
        step, calls = make_train_step(*given, **options), []

        def fails(*batch: Any) -> Any:
            calls.append(0)
            if len(calls) > 1:
                raise ArithmeticError("the second update")
            return step(*batch)

        return fails

    net, plan = port(), plan_of(dataclasses.replace(RECIPE, clip_norm=0.0), BATCHES)
    before = values_of(net)
    with pytest.raises(ValueError, match="the second update"):
        record(MindSporeSide(net, plan, make_step=failing), probes=False)
    for name, value in values_of(net).items():
        np.testing.assert_array_equal(value, before[name])


def test_settings_may_be_numbers_of_numpy(tmp_path):
    from resnet_fn.parity.record.torch_side import TorchSide

    one, rate = np.int64(1), np.float32(0.5)
    module = t.Sequential(
        t.Conv2d(np.int64(2), np.int64(4), np.int64(3), padding=one, groups=np.int64(2)),
        t.LeakyReLU(rate),
        t.Flatten(),
        t.Linear(64, 3),
    )
    batches = [(draw(2, 2, 4, 4), np.array([0, 1], np.int32))]
    save_recording(
        record(TorchSide(module, plan_of(ADAMW, batches)), probes=False).trace, tmp_path / "trace"
    )
    layers = load_recording(tmp_path / "trace").layers["eval"]
    settings = {name: value for layer in layers for name, value in layer.settings.items()}
    assert (settings["groups"], settings["pads"], settings["slope"]) == (2, (1, 1, 1, 1), 0.5)


def test_what_a_port_takes_over_has_its_names(recorded):
    theirs, _, names, _ = recorded
    like = like_of(theirs.trace, names, True)
    shapes = {name: one.shape for name, one in theirs.trace.run.gradients.items()}
    weights, gradients = made_up(shapes)
    np.testing.assert_array_equal(like.weights["part.0.gamma"], weights["part.0.weight"])
    np.testing.assert_array_equal(like.gradients["part.0.gamma"], gradients["part.0.weight"])
    np.testing.assert_array_equal(
        like.last["part.0.gamma"], theirs.trace.run.after[-1]["part.0.weight"]
    )
    assert "part.0.moving_mean" in like.start
    assert "part.0.moving_mean" not in like.last
    assert like.decays["head.weight"] == ADAMW.weight_decay
    assert like.decays["part.0.gamma"] == 0
    assert like_of(theirs.trace, names, False).weights == {}


def test_masks_of_the_port_are_the_reference_s(recorded):
    theirs, ours, _, _ = recorded
    kept = [
        next(one for one in side.trace.layers["dropout"] if one.kind == "dropout").output
        for side in (theirs, ours)
    ]
    np.testing.assert_allclose(kept[1], kept[0], rtol=1e-5, atol=1e-6)
    assert 0 < (kept[0] == 0).sum() < kept[0].size


def test_what_a_watch_drops_is_not_kept():
    """In float64, gradients and the first state take several times a net's memory."""
    kept: list[Any] = []
    alive: list[list[bool]] = []

    def array() -> np.ndarray:
        made = np.zeros(3)
        kept.append(weakref.ref(made))
        return made

    class Fake:
        def evaluate(self, inputs: Any) -> dict[str, np.ndarray]:
            return {}

        def state(self) -> dict[str, np.ndarray]:
            return {"weight": array()}

        def alone(self) -> tuple[list[float], dict[str, np.ndarray]]:
            return [], {}

        def update(self, index: int, rate: float) -> Step:
            alive.append([one() is not None for one in kept])
            return Step(0.0, 0.0, {}, gradients={"weight": array()}, clipped={"weight": array()})

        last_outputs = moved = average = lambda self, *given: {}

    class Drops(Watch):
        def started(self, run: Run) -> None:
            run.start = {}

        def first(self, run: Run) -> None:
            run.gradients, run.clipped = {}, {}

    plan = plan_of(RECIPE, BATCHES)
    record_updates(Fake(), plan, plan.rates, {}, watch=Drops())
    assert alive == [[False], [False, False, False, True]]


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([], None),
        ([(3,)], (3,)),
        ([(3,), (3, 2)], (3, 3)),
        ([(3,), (1,)], None),
        ([(3, 2), (0, 8)], None),
        ([(0, 2), (0, 4, 2)], (0, 10)),
    ],
)
def test_outputs_of_as_many_samples_are_one_array(shapes, wanted):
    arrays = {f"logits {index}": np.ones(shape) for index, shape in enumerate(shapes)}
    plan = SimpleNamespace(first=(np.ones(3), None))
    side = SimpleNamespace(plan=plan, forward=lambda *_: None, arrays=lambda _: arrays)
    whole = output_in_training(side)
    assert (whole if whole is None else whole.shape) == wanted


def test_a_layer_without_samples_shows_no_branch():
    """As an expert that gets no token of the batch."""
    none = np.ones((0, 8))
    assert measured_branch([none, none], none, none) is None


def test_repeated_layers_are_freed_before_updates():
    class Draws(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x + ops.rand_like(x) if self.training else x

    repeated: list[Any] = []
    alive: list[bool] = []

    class Watched(MindSporeSide):
        def layers_again(self) -> Any:
            layers = super().layers_again()
            repeated.extend(map(weakref.ref, layers))
            return layers

        def updates(self, like: Any) -> Run:
            alive.extend(one() is not None for one in repeated)
            return super().updates(like)

    trace = record(Watched(Ours(Draws()), plan_of(RECIPE, BATCHES)), probes=False).trace
    assert trace.random_train == "part (Draws)"
    assert trace.layers["train"] == []
    assert {*alive} == {False}
