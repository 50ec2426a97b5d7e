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
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.update.step import make_train_step
from small_nets import ADAMW, Ours, Theirs, draw, record_live, record_reference, t

pytestmark = pytest.mark.usefixtures("device")

BATCHES = [(draw(4, 8), np.array([0, 1, 2, 0], np.int32)) for _ in range(2)]
RECIPE = ADAMW.changed(clip_norm=0.1, ema=0.9, ema_warmup=False)
FILLED_ELSEWHERE = {"file", "workers", "flipped"}
OF_REFERENCE = {"rounding", "limits"}
OF_CUSTOM_FUNCTIONS = {"losses_alone", "optimizer_alone", "optimizer_settings"}
OF_ODD_NETS = {"ties", "kernels", "tied", "constants", "random_train", "random_eval", "changing"}
OF_ODD_NETS |= {"unread", "attributes", "buffers", "unmasked"}


def reference():
    class Limited(Theirs):
        def forward(self, x):
            return super().forward(x).clamp(max=1e3)

    return Limited(t.BatchNorm1d(8), t.Dropout(0.5))


def port() -> Ours:
    return Ours(nn.BatchNorm1d(8), nn.Dropout(p=0.5))


def values_of(net: nn.Cell) -> dict[str, np.ndarray]:
    return {name: parameter.numpy().copy() for name, parameter in net.parameters_and_names()}


def assert_same(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]):
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], name)


@pytest.fixture(scope="module")
def recorded() -> tuple[Recorded, Recorded, Any, nn.Cell]:
    """The reference's and the port's recording, their names, and the port."""
    module, net, plan = reference(), port(), plan_of(RECIPE, BATCHES)
    before = {name: array.clone() for name, array in module.state_dict().items()}
    theirs = record_live(module, plan, build=reference)
    assert_same(module.state_dict(), before)
    side = MindSporeSide(net, theirs.trace.plan, build=port)
    names = names_of(side, theirs.trace)
    ours = record(side, like_of(theirs.trace, names, False))
    return theirs, ours, names, net


def test_the_port_keeps_the_weights_it_began_with(recorded):
    theirs, ours, names, net = recorded
    start = names.rename(theirs.trace.run.start)
    assert_same(values_of(net), start)
    assert_same(ours.trace.run.start, start)
    assert any((array != start[name]).any() for name, array in ours.trace.run.after[0].items())


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
    net, theirs = port(), recorded[0].trace
    functions = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3)
    side = MindSporeSide(net, theirs.plan, loss=functions[0], optimizer=functions[1])
    trace = record(side, like_of(theirs, names_of(side, theirs), True), probes=False).trace
    assert all(getattr(trace, name) for name in OF_CUSTOM_FUNCTIONS)
    assert trace.probes == {}


def of_pairs(outputs, labels):
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
        assert_same(values_of(net), before)
    assert {case.samples for case in trace.losses_alone} == {4, 8}
    (line,) = [line for line in trace.limits if line.startswith("loss alone")]
    cases = ", ".join(f"1 samples, outputs × {times}" for times in (1, 10, 100))
    assert line == f"loss alone: the reference's fails on {cases} (AssertionError: no pair)"


def test_a_net_whose_step_fails_keeps_its_weights():
    def failing(*given, **options):
        step, updates = make_train_step(*given, **options), iter([1])

        def first_alone(*batch):
            if not next(updates, 0):
                raise ArithmeticError("the second update")
            return step(*batch)

        return first_alone

    net, plan = port(), plan_of(RECIPE.changed(clip_norm=0.0), BATCHES)
    before = values_of(net)
    with pytest.raises(ValueError, match="the second update"):
        record(MindSporeSide(net, plan, make_step=failing), probes=False)
    assert_same(values_of(net), before)


def test_settings_may_be_numbers_of_numpy(tmp_path):
    one, two, four = map(np.int64, (1, 2, 4))
    module = t.Sequential(
        t.Conv2d(two, four, np.int64(3), padding=one, groups=two),
        t.LeakyReLU(np.float32(0.5)),
        t.Flatten(),
        t.Linear(64, 3),
    )
    plan = plan_of(ADAMW, [(draw(2, 2, 4, 4), np.array([0, 1], np.int32))])
    save_recording(record_reference(module, plan, probes=False), tmp_path / "trace")
    settings: dict[str, Any] = {}
    for layer in load_recording(tmp_path / "trace").layers["eval"]:
        settings |= layer.settings
    assert (settings["groups"], settings["pads"], settings["slope"]) == (2, (1, 1, 1, 1), 0.5)


def test_what_a_port_takes_over_has_its_names(recorded):
    """A check of all numbers: the optimizer alone, in right_ports/test_optimizers.py."""
    theirs, _, names, _ = recorded
    like = like_of(theirs.trace, names, True)
    trained = {*names.parameters} - {"part.0.moving_mean", "part.0.moving_variance"}
    assert like.start.keys() == {*names.parameters}
    for arrays in (like.last, like.weights, like.gradients, like.decays):
        assert arrays.keys() == trained
    assert (like.decays["head.weight"], like.decays["part.0.gamma"]) == (ADAMW.weight_decay, 0)
    assert like_of(theirs.trace, names, False).weights == {}


def kept_of(trace: Trace) -> np.ndarray:
    """What the dropout gives."""
    return next(layer for layer in trace.layers["dropout"] if layer.kind == "dropout").output


def test_masks_of_the_port_are_the_reference_s(recorded):
    theirs, ours = (kept_of(side.trace) for side in recorded[:2])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert 0 < (theirs == 0).sum() < theirs.size


def test_what_a_watch_drops_is_not_kept():
    """In float64, gradients and the first state take several times a net's memory."""
    kept: list[Any] = []
    alive: list[list[bool]] = []

    def array() -> dict[str, np.ndarray]:
        made = np.zeros(3)
        kept.append(weakref.ref(made))
        return {"weight": made}

    def update(index, rate):
        alive.append([each() is not None for each in kept])
        return Step(0.0, 0.0, {}, gradients=array(), clipped=array())

    class Drops(Watch):
        def started(self, run):
            run.start = {}

        def first(self, run):
            run.gradients, run.clipped = {}, {}

    side = SimpleNamespace(state=array, update=update, alone=lambda: ([], {}))
    for name in ("evaluate", "last_outputs", "moved", "average"):
        setattr(side, name, lambda *_: {})
    plan = plan_of(RECIPE, BATCHES)
    record_updates(side, plan, plan.rates, {}, watch=Drops())
    assert alive == [[False], [False, False, False, True]]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([], None),
        ([(3,)], (3,)),
        ([(3,), (3, 2)], (3, 3)),
        ([(3,), (1,)], None),
        ([(3, 2), (0, 8)], None),
        ([(0, 2), (0, 4, 2)], (0, 10)),
    ],
)
def test_outputs_of_as_many_samples_are_one_array(shapes, expected):
    arrays = {f"logits {index}": np.ones(shape) for index, shape in enumerate(shapes)}
    plan = SimpleNamespace(first=(np.ones(3), None))
    side = SimpleNamespace(plan=plan, forward=lambda *_: None, arrays=lambda _: arrays)
    assert getattr(output_in_training(side), "shape", None) == expected


def test_a_layer_without_samples_shows_no_branch():
    """As an expert that gets no token of the batch."""
    none = np.ones((0, 8))
    assert measured_branch([none, none], none, none) is None


def test_repeated_layers_are_freed_before_updates():
    class Draws(nn.Cell):
        def construct(self, x):
            return x + ops.rand_like(x) if self.training else x

    repeated: list[Any] = []
    alive: list[bool] = []

    class Watched(MindSporeSide):
        def layers_again(self):
            layers = super().layers_again()
            repeated.extend(map(weakref.ref, layers))
            return layers

        def updates(self, like) -> Run:
            alive.extend(one() is not None for one in repeated)
            return super().updates(like)

    trace = record(Watched(Ours(Draws()), plan_of(RECIPE, BATCHES)), probes=False).trace
    assert trace.random_train == "part (Draws)"
    assert trace.layers["train"] == []
    assert {*alive} == {False}
