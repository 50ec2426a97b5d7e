"""State that training moves, beside weights: outputs in evaluation mode after the updates, with the
same weights.
"""

import copy
import dataclasses
import functools
from collections import Counter as Counted
from collections import deque
from fractions import Fraction
from types import SimpleNamespace

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.verdict import verdict
from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.numbers import Noted, aliases_of
from resnet_fn.parity.replay import replay
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.derived import moves_evenly
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.source import Recorded, StoredSource
from small_nets import (
    SGD,
    Ours,
    Theirs,
    cell,
    ladder_of,
    ones,
    ours,
    record_reference,
    recording_of,
    stage_of,
    t,
    theirs,
    torch,
)

torch_moved = pytest.importorskip("resnet_fn.parity.record.torch_moved", reason="needs torch")
from resnet_fn.parity.record.torch_module import state  # noqa: E402 (imports torch)

moved, moving_state = torch_moved.moved, torch_moved.moving_state

pytestmark = pytest.mark.usefixtures("device")
STAGE = "eval forward after the updates"
RNG = np.random.default_rng(0)
BATCHES = [
    (RNG.normal(1, 1, (6, 8)).astype(np.float32), np.array([0, 1, 2] * 2, np.int32))
    for _ in range(3)
]


def theirs_of(forward, **parts):
    """A net with a dense layer `first` before its head."""
    return theirs(forward, first=t.Linear(8, 8), **parts)


def ours_of(construct, **parts):
    return ours(construct, first=nn.Dense(8, 8), **parts)


def traced(module):
    return record_reference(module, plan_of(SGD, BATCHES), probes=False)


@functools.cache
def reference(read, persistent):
    """Training centres features by a batch's mean, evaluation by a mean of old ones, if it is
    `read` there.
    """

    def forward(self, x):
        x = self.first(x)
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.5).add_(0.5 * x.mean(0))
                self.calls += 1
        if read == ("training" if self.training else "evaluation"):
            x = x + 1e-3 * self.center
        return self.head(x)

    module = theirs_of(forward)
    module.register_buffer("center", torch.zeros(8), persistent)
    module.register_buffer("calls", torch.zeros(()))
    return recording_of(module, BATCHES)


def port(name="", keep=0.5):
    """Its state has this name, or there is none."""

    def construct(self, x):
        x = self.first(x)
        if name and self.training:
            state = getattr(self, name)
            ops.assign(state, keep * state + (1 - keep) * ops.stop_gradient(x.mean(0)))
        elif name:
            x = x + 1e-3 * getattr(self, name)
        return self.head(x)

    state = {name: Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)} if name else {}
    return ours_of(construct, **state)


@pytest.mark.parametrize(
    ("persistent", "name"), [(True, "center"), (True, "average"), (False, "average")]
)
def test_state_that_moves_alike_agrees_under_any_name(persistent, name):
    ladder = ladder_of(port(name), reference("evaluation", persistent))
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder, STAGE).verdict == "ok"
    assert not [line for line in ladder.changes if "calls" in line]


@pytest.mark.parametrize(("persistent", "name"), [(True, ""), (False, ""), (False, "average")])
def test_state_moved_by_one_side_makes_outputs_differ(persistent, name):
    """Under another name no stage compares the arrays."""
    ladder = ladder_of(port(name, keep=0.9), reference("evaluation", persistent))
    assert [title_of_stage(stage) for stage in ladder.stages if stage.verdict == "DIFFERS"] == [
        STAGE
    ], table(ladder)
    assert name or ladder.first_stage.hints[0].startswith(
        "center: training moves it in the reference"
    )


@pytest.mark.parametrize(
    ("read", "words"), [("", "no output"), ("training", "outputs in training mode")]
)
def test_moving_buffers_not_read_in_evaluation_are_noted(read, words):
    ladder = ladder_of(port(), reference(read, persistent=False))
    assert stage_of(ladder, STAGE).verdict == "ok", table(ladder)
    (line,) = [line for line in ladder.changes if line.startswith("center: ")]
    assert f"changes {words}" in line
    assert read or ladder.agrees


def test_evaluation_uses_reference_weights_and_own_statistics(tmp_path):
    """By torch itself: evaluation with the reference's last weights and the statistics of this
    side.
    """

    def stage(recording: Trace, momentum: float) -> Stage:
        net = Ours(nn.BatchNorm1d(8, momentum=momentum))
        return stage_of(
            replay(
                Recorded(recording, StoredSource(recording)),
                net,
                initialisation=False,
                quick=True,
                mode="pynative",
            ),
            STAGE,
        )

    recording = traced(Theirs(t.BatchNorm1d(8)))
    item = stage(recording, 0.8).differences[0]
    start, last = recording.run.start, recording.run.after[-1]
    module = Theirs(t.BatchNorm1d(8))
    module.load_state_dict(
        {name: torch.from_numpy(value) for name, value in last.items()}, strict=False
    )
    with torch.no_grad():
        module.part.running_mean.copy_(torch.from_numpy(start["part.running_mean"]))
        module.part.running_var.copy_(torch.from_numpy(start["part.running_var"]))
        module.part.momentum = 0.2
        for images, _ in BATCHES:
            module.part.train()(torch.from_numpy(images))
        outputs = module.eval()(torch.from_numpy(BATCHES[0][0]))
    assert item.verdict == "DIFFERS"
    assert item.port == pytest.approx(float(outputs[item.place]), rel=1e-5)

    save_recording(recording, tmp_path / "trace")
    loaded = load_recording(tmp_path / "trace")
    assert stage(loaded, 0.9).verdict == "ok"
    loaded.run.last_outputs = {}  # as in a trace that was recorded before there was such a stage
    skipped = stage(loaded, 0.8)
    assert skipped.verdict == "undecided"
    assert "record it again" in skipped.note


class Counter:
    """An object of a class that is no framework's."""

    def __init__(self, count: int) -> None:
        self.count = count


def counting(count, start):
    """The module counts its training steps, which perhaps divide the outputs later."""

    def forward(self, x):
        x = self.head(self.first(x))
        scale = 0.999 ** float(self.count) if count == "schedule" else 1.0
        if count == "warm-up":
            scale = min(1.0, (float(self.count) + 500) / 1000)
        self.count += int(self.training)
        return x / scale

    module = theirs_of(forward)
    if isinstance(start, int):
        module.count = start
    else:
        module.register_buffer("count", start)
    return module


@pytest.mark.parametrize("start", [torch.zeros((), dtype=torch.long), torch.zeros(1), 0])
@pytest.mark.parametrize("count", ["schedule", "warm-up", "unused"])
def test_a_counter_is_named_if_it_changes_outputs(count, start):
    trace = traced(counting(count, start))
    assert [*trace.run.moved] == (["count"] if count != "unused" else [])


def test_a_counter_of_long_period_is_named():
    """No value that is tried is a multiple of 1009."""

    def forward(self, x):
        self.count += int(self.training)
        every = 0.9 if self.count % 1009 == 1008 else 1.0
        return self.head(self.first(x)) * every

    module = theirs_of(forward)
    module.register_buffer("count", torch.zeros((), dtype=torch.long))
    trace = traced(module)
    names = NameMap("names", {name: whole_array(name) for name in trace.run.start}, {}, ())
    found = verdict(trace, trace, names)
    assert found.agrees
    assert any(line.startswith("count: counts") for line in found.coverage.not_exercised)


class FixedDict(dict):
    """A mapping that nobody writes, and that copies may share."""

    def __setitem__(self, name, value):
        raise TypeError("read-only")

    def __deepcopy__(self, memo):
        return self


class FixedList(list):
    """A list that nobody writes."""

    def __setitem__(self, name, value):
        raise TypeError("read-only")


@pytest.mark.parametrize("fixed", [FixedDict(a=1.0, b=np.ones(1)), FixedList([1.0, 2])])
def test_numbers_that_nobody_can_write_stay(fixed):
    """A counter beside them is found, by trials that write numbers."""

    def construct(self, x):
        self.count += int(self.training)
        return self.head(self.first(x)) / 0.999999**self.count

    module = counting("schedule", 0)
    module.fixed = fixed
    port = ours_of(construct, count=0)
    vars(port)["fixed"] = fixed
    ladder = ladder_of(port, module, BATCHES)
    words = "count: updates move it, and other values change outputs"
    lines = ladder.coverage.not_exercised
    assert [line[: len(words)] for line in lines if "count" in line] == [words], lines
    assert not [line for line in lines if "fixed" in line]


@dataclasses.dataclass(slots=True)
class Slotted:
    """An object without a dict of attributes."""

    count: int = 0
    never: int = dataclasses.field(init=False)


@pytest.mark.parametrize("path", ["count", "a.count", "a.b.count"])
def test_counters_deep_in_objects_are_found(path):
    *names, _ = path.split(".")
    held = Slotted()
    for name in reversed(names):
        held = {name: held}

    def counter(net):
        found = net.held
        for name in names:
            found = found[name]
        return found

    def forward(self, x):
        counter(self).count += int(self.training)
        return self.head(self.first(x)) / 0.999999 ** counter(self).count

    module = theirs_of(forward, held=copy.deepcopy(held))
    port = ours_of(forward, held=held)
    lines = lines_of_counters(module, port)
    words = f"held.{path}: updates move it, and other values change outputs"
    assert [line[: len(words)] for line in lines] == [words]
    assert counter(module).count == counter(port).count == 0


HOLDERS = {
    "tensor": lambda: torch.tensor(0),
    "floats": lambda: torch.zeros(1),
    "scalar": lambda: np.int64(0),
    "array": lambda: np.zeros(()),
    "list": lambda: [0],
    "queue": lambda: deque([0]),
    "counter": lambda: Counted(count=0),
    "dict of tensors": lambda: {"count": torch.tensor(0)},
    "dict": lambda: {"count": 0},
    "namespace": lambda: SimpleNamespace(count=0),
    "object": lambda: Counter(count=0),
}
OBJECTS = ("namespace", "object")


@pytest.mark.parametrize(
    ("kind", "base"),
    [*((kind, 0.999999) for kind in HOLDERS), ("list", 1.0), ("object", 1.0)],
)
def test_a_counter_in_any_holder_is_named(kind, base):
    holder = HOLDERS[kind]()

    def forward(self, x):
        count = vars(self.count) if kind in OBJECTS else getattr(self, "count", None)
        if isinstance(count, torch.Tensor | np.ndarray) and kind != "tensor":
            count += int(self.training)
        elif isinstance(count, list | deque | dict):
            key = "count" if isinstance(count, dict) else 0
            count[key] = count[key] + int(self.training)
            count = count[key]
        else:
            self.count = count = count + int(self.training)
        return self.head(self.first(x)) / base ** float(count)

    module = theirs_of(forward)
    module.count = holder
    trace = traced(module)
    name = "count"
    if kind in OBJECTS or isinstance(holder, list | deque | dict):
        name = "count.0" if isinstance(holder, list | deque) else "count.count"
    assert [*trace.run.moved] == ([name] if base < 1 else [])
    assert any(line.startswith(f"{name}: counts") for line in trace.limits) is (base == 1)


def test_a_loss_in_a_tensor_is_no_counter():
    def forward(self, x):
        self.loss, self.count = x.mean().detach(), self.loss.new_zeros(3)
        return self.head(self.first(x)) + 0 * self.loss

    def construct(self, x):
        if self.training:
            self.loss = x.mean()
        return self.head(self.first(x)) + 0 * self.loss

    module, port = theirs_of(forward), ours_of(construct)
    module.loss, port.loss = torch.tensor(0.5), Tensor(0.5)
    ladder = ladder_of(port, module, BATCHES)
    assert ladder.agrees, table(ladder)
    assert not [line for line in ladder.coverage.not_exercised if "loss: " in line]
    assert float(port.loss) == 0.5


@pytest.mark.parametrize("start", [torch.tensor(1.0), 1.0])
def test_averages_in_attributes_are_no_counters(start):
    """Training averages the inputs' size, which evaluation reads."""

    def moved(self, size):
        if self.training:
            self.scale = 0.9 * self.scale + 0.1 * size
        return self.scale

    def forward(self, x):
        size = x.abs().mean().detach()
        size = size if isinstance(start, torch.Tensor) else float(size)
        return self.head(self.first(x)) * moved(self, size)

    def construct(self, x):
        return self.head(self.first(x)) * moved(self, ops.stop_gradient(x.abs().mean()))

    module, port = theirs_of(forward), ours_of(construct)
    module.scale, port.scale = start, Tensor(1.0)
    ladder = ladder_of(port, module, BATCHES)
    assert ladder.agrees, table(ladder)
    lines = [line for line in ladder.changes if line.startswith("scale: ")]
    assert bool(lines) is isinstance(start, float)


@pytest.mark.parametrize("start", [1, torch.tensor(1), np.int64(1), "buffer"])
def test_integers_that_move_by_fractions_are_named(start):
    """Training moves it by fractions."""

    def forward(self, x):
        if self.training:
            self.rate = self.rate * 0.999
        return self.head(self.first(x)) * (0.9 if self.rate > 0.95 else 0.5)

    module = theirs_of(forward)
    if isinstance(start, str):
        module.register_buffer("rate", torch.tensor(1), persistent=False)
    else:
        module.rate = start
    port = ours_of(lambda self, x: self.head(self.first(x)) * 0.9)
    ladder = ladder_of(port, module, BATCHES)
    words = "rate: training moves it in the reference; it has no counterpart"
    assert [line for line in ladder.changes if line.startswith(words)], ladder.changes


def test_an_idle_number_that_moves_evenly_is_named():
    """Only values near 0.45, which are not tried, change outputs."""

    def forward(self, x):
        if self.training:
            self.tau *= 0.999
            self.size = float(x.detach().abs().mean())
        return self.head(self.first(x)) * (1 + max(0, 0.05 - abs(self.tau - 0.45)))

    module = theirs_of(forward, size=0.0)
    for start in (1.0, torch.tensor(1.0)):
        module.tau = start
        port = ours_of(lambda self, x: self.head(self.first(x)))
        lines = ladder_of(port, module, BATCHES).coverage.not_exercised
        words = "tau: moves evenly, and no later value was seen to change an output"
        assert [line for line in lines if line.startswith(("tau", "size"))] == [words], lines


def test_numbers_are_noted_anew_after_a_restart():
    net = torch.nn.Module()

    def places(rate):
        net.rate = torch.tensor(rate)
        return torch_moved.places_of(net)

    noted = Noted(places(1.0))
    for rate in (1.5, 2.1):
        noted.add(places(rate))
    assert not noted.moved(places(2.1))
    noted.restart(places(1.0))
    for rate in (1.1, 1.2):
        noted.add(places(rate))
    assert noted.moved(places(1.2)) == {"rate": True}


def test_results_in_attributes_take_few_passes():
    """Later values are tried only of what moves as a counter does."""

    class Storing(torch.nn.Module):
        def forward(self, x):
            CALLS.append(0)
            self.size = float(x.abs().mean())
            return x

    net, sizes = Storing(), [1.0, 0.7, 0.9]
    net.size = sizes[0]
    first, noted = moving_state(net), Noted(torch_moved.places_of(net))
    for net.size in sizes[1:]:
        noted.add(torch_moved.places_of(net))
    CALLS.clear()
    assert not moved(net, first, ones(2, 3).numpy(), noted.moved(torch_moved.places_of(net)))
    assert len(CALLS) <= 2 * 4


FACTORS = {"down": 0.999, "up": 1.02}
FRACTIONS = {
    "tensor": lambda: torch.tensor(1.0),
    "array": lambda: np.ones((), np.float32),
    "number": lambda: 1.0,
    "buffer": lambda: torch.ones(()),
}


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        *(("tensor", moves) for moves in ("by steps", "down", "up")),
        ("array", "down"),
        ("number", "up"),
        ("buffer", "by steps"),
    ],
)
def test_numbers_that_move_by_fractions_are_named(kind, moves):
    """It is a schedule, which has no effect yet."""

    def moved(self):
        if self.training:
            self.rate = self.rate - 0.001 if moves == "by steps" else self.rate * FACTORS[moves]
        return self.rate

    def forward(self, x):
        return self.head(self.first(x)) * (0.9 if 0.95 < float(moved(self)) < 1.5 else 0.5)

    def construct(self, x):
        moved(self)
        return self.head(self.first(x)) * 0.9

    module = theirs_of(forward)
    if kind == "buffer":
        module.register_buffer("rate", FRACTIONS[kind]())
    else:
        module.rate = FRACTIONS[kind]()
    port = ours_of(lambda self, x: self.head(self.first(x)) * 0.9)
    recorded = recording_of(module, BATCHES)
    ladder = ladder_of(port, recorded)
    assert ladder.agrees, table(ladder)
    (line,) = [line for line in ladder.changes if line.startswith("rate: training moves it")]
    assert "outputs in evaluation mode" in line

    port = ours_of(construct)
    port.rate = Tensor(1.0)
    if kind == "buffer":
        port.rate = Parameter(port.rate, requires_grad=False)
    ladder = ladder_of(port, recorded)
    assert ladder.agrees, table(ladder)
    lines = [line for line in ladder.coverage.not_exercised if line.startswith("rate: ")]
    assert lines[-1:] == [
        "rate: updates move it, and other values change outputs; only those of 3 updates were "
        "compared"
    ]


@pytest.mark.parametrize(("by", "always"), [(0.001, False), (-0.25, False), (0.001, True)])
def test_the_ports_numbers_moving_by_fractions_are_named(by, always):
    """They move in training, or in each forward pass."""

    def construct(self, x):
        self.rate = self.rate + by * int(self.training or always)
        return self.head(self.first(x)) * ops.minimum(Tensor(0.9), self.rate + 1)

    port = ours_of(construct)
    port.rate = Tensor(1.0)
    module = theirs_of(lambda self, x: self.head(self.first(x)) * 0.9)
    lines = ladder_of(port, module, BATCHES).coverage.not_exercised
    assert [line for line in lines if line.startswith("rate: updates move it in the port")]


def test_a_buffer_that_moves_in_each_pass_counts():
    """The first of the recorded steps is that of an evaluation and an update."""

    def moved(self):
        self.rate.add_(0.001)
        return float(self.rate)

    def forward(self, x):
        return self.head(self.first(x)) * (0.9 if moved(self) < 1.5 else 0.5)

    def construct(self, x):
        ops.assign(self.rate, self.rate + 0.001)
        return self.head(self.first(x)) * 0.9

    module = theirs_of(forward)
    module.register_buffer("rate", torch.ones(()))
    port = ours_of(construct, rate=Parameter(Tensor(1.0), requires_grad=False))
    lines = ladder_of(port, module, BATCHES).coverage.not_exercised
    assert [line for line in lines if line.startswith("rate: updates move it, and other values")]


@pytest.mark.parametrize("start", [1.0, 0.97471178, 0.98363409])
def test_steps_are_even_but_for_rounding(start):
    values = [torch.tensor(start)]
    for _ in range(3):
        values.append(values[-1] * 0.99998)
    assert moves_evenly([float(value) for value in values])
    assert not moves_evenly([float(value) for value in (*values[:3], values[3] + 1e-6)])
    assert not moves_evenly(start + np.arange(4) * np.spacing(np.float32(start)))


def test_counters_in_long_lists_are_not_sought():
    module = theirs_of(lambda self, x: self.head(self.first(x)))
    module.few, module.many = [0] * 9, [0] * 999
    names = moving_state(module)
    assert "few.8" in names
    assert not [name for name in names if name.startswith("many")]


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    """An object whose number only its own class writes."""

    count: int = 0


def test_a_counter_in_frozen_slots_is_named():
    def forward(self, x):
        self.held = FrozenSlots(self.held.count + int(self.training))
        return self.head(self.first(x)) / 0.999999**self.held.count

    module = theirs_of(forward)
    module.held = FrozenSlots()
    trace = traced(module)
    assert [*trace.run.moved] == ["held.count"]


class Interned:
    """A value of which there is one object, which copies share."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __deepcopy__(self, memo):
        return self


INTERNED = [Interned(number) for number in range(9)]


class ReadOnly(dict):
    """A mapping that only its own class writes."""

    def __setitem__(self, name, value):
        raise TypeError("read-only")

    def __deepcopy__(self, memo):
        return ReadOnly(self)

    def add(self, more):
        super().__setitem__("count", self["count"] + more)


def interned(self):
    self.held = INTERNED[self.held.count + int(self.training)]


def fraction(self):
    self.held += Fraction(int(self.training), 1)


@pytest.mark.parametrize(
    ("start", "step", "words"),
    [
        (INTERNED[0], interned, ["held.count: "]),
        (ReadOnly(count=0), lambda self: self.held.add(int(self.training)), ["held.count: "]),
        (Fraction(1, 2), fraction, []),
    ],
    ids=["interned", "read-only", "fraction"],
)
def test_what_nobody_can_write_is_not_tried(start, step, words):
    def forward(self, x):
        step(self)
        return self.head(self.first(x))

    module = theirs_of(forward)
    module.held = start
    lines = traced(module).limits
    lines = [line for line in lines if line.startswith("held")]
    assert lines == [
        f"{word}updates move it, and other values could not be tried" for word in words
    ]
    assert [value.count for value in INTERNED] == list(range(9))
    assert module.held == start


@pytest.mark.parametrize("count", [deque([0]), {"count": 0}, np.zeros(1)])
def test_a_number_that_is_gone_is_no_error(count):
    net = torch.nn.Module()
    net.held = SimpleNamespace(count=count)
    (place,) = torch_moved.places_of(net).values()
    if isinstance(count, np.ndarray):
        del net.held.count
    else:
        count.clear()
    place.write(1)


def test_a_loss_that_nobody_can_write_is_unnamed():
    def forward(self, x):
        x = self.head(self.first(x))
        self.held.count = x.detach().mean()
        return x

    module = theirs_of(forward)
    module.held = Interned(torch.tensor(0.5))
    trace = traced(module)
    assert not [line for line in trace.limits if line.startswith("held")]


def test_objects_in_a_circle_give_each_counter_once():
    net, first, second = torch.nn.Module(), Counter(0), Counter(0)
    net.first, net.second = first, second
    first.next, second.previous = second, first
    places = torch_moved.places_of(net)
    assert {*places} - aliases_of(places, places) == {"first.count", "second.count"}


@pytest.mark.parametrize("deep", [{"count": 0}, [0]])
def test_the_shortest_path_names_a_counter(deep):
    net, inner = torch.nn.Module(), SimpleNamespace(deep=deep)
    net.far, net.near = [[inner]], inner
    places = torch_moved.places_of(net)
    (name,) = {*places} - aliases_of(places, places)
    assert name.startswith("near.deep.")


@pytest.mark.parametrize("start", [{"count": 0}, dataclasses.make_dataclass("S", ["count"])(0)])
def test_a_counter_may_leave_what_it_began_in(start):
    """Two attributes hold the same object before the updates."""

    def forward(self, x):
        if self.training:
            self.now = copy.copy(self.now)
            if isinstance(self.now, dict):
                self.now["count"] += 1
            else:
                self.now.count += 1
        count = self.now["count"] if isinstance(self.now, dict) else self.now.count
        return self.head(self.first(x)) * (0.5 if count > 500 else 1)

    module = theirs_of(forward)
    module.initial = module.now = start
    trace = traced(module)
    assert [*trace.run.moved] == ["now.count"]


def test_a_counters_object_may_be_held_twice_later():
    """The name that training adds is nearer."""

    def forward(self, x):
        if self.training:
            self.inner.state.count += 1
            self.last = self.inner.state
        return self.head(self.first(x)) * (0.5 if self.inner.state.count > 500 else 1)

    module = theirs_of(forward)
    module.inner = SimpleNamespace(state=SimpleNamespace(count=0))
    trace = traced(module)
    assert [*trace.run.moved] == ["inner.state.count"]


def test_shared_settings_hide_no_counter():
    net, shared = torch.nn.Module(), SimpleNamespace(**{f"k{i}": i for i in range(30)})
    net.blocks = [SimpleNamespace(shared=shared) for _ in range(50)]
    net.schedule = SimpleNamespace(a=SimpleNamespace(b=SimpleNamespace(step=0)))
    assert "schedule.a.b.step" in torch_moved.places_of(net)


RING = [torch.tensor(float(number)) for number in range(4)]


def test_tensors_that_a_run_takes_stay_unchanged():
    def forward(self, x):
        if self.training:
            self.count = RING[(int(self.count) + 1) % 4]
            x = x * 0.999999 ** int(self.count)
        return self.head(self.first(x))

    module = theirs_of(forward)
    module.count = torch.tensor(0.0)
    traced(module)
    assert [float(number) for number in RING] == [0.0, 1.0, 2.0, 3.0]


def test_a_counter_that_gives_way_is_found():
    """From update 4 on, `current` is another of the net's own objects."""

    def forward(self, x):
        y = self.head(self.first(x)) * (self.current.rate if self.training else 1)
        if self.training:
            self.warm.rate += 1
            self.steps += 1
            if self.steps > 3:
                self.current = self.cold
        return y

    module = theirs_of(forward)
    module.warm = module.current = SimpleNamespace(rate=3.0)
    module.cold, module.steps = SimpleNamespace(rate=7.0), 0
    trace = record_reference(module, plan_of(SGD, BATCHES[:1] * 3), probes=False)
    assert trace.run.moved["warm.rate"] == "training"


STAGES = [FrozenSlots(number) for number in range(999)]


def test_objects_that_a_run_takes_stay_unchanged():
    def forward(self, x):
        if self.training:
            self.stage = STAGES[self.stage.count + 1]
        return self.head(self.first(x)) / 0.999999**self.stage.count

    module = theirs_of(forward)
    module.stage = FrozenSlots()
    traced(module)
    assert [stage.count for stage in STAGES] == list(range(999))


def test_few_numbers_in_large_objects_are_sought():
    """Each run looks at them."""
    net = torch.nn.Module()
    net.pieces = {f"word {number}": [number] for number in range(999)}
    net.table = [[[number] * 50 for _ in range(50)] for number in range(50)]
    net.count = 0
    names = moving_state(net)
    assert "count" in names
    assert len(names) < 1001
    assert not [name for name in names if name.startswith("pieces")]


@pytest.mark.parametrize("kind", ["tensor", "list", "number"])
@pytest.mark.parametrize("counts", [True, False])
def test_a_number_that_both_nets_count_agrees(counts, kind):
    """The outputs of each update are 1 % larger; all else is measured with the first count."""

    def counted(self, step):
        if kind == "list":
            self.count[0] += step
            return self.count[0]
        self.count = self.count + step
        return self.count

    def forward(self, x):
        return self.head(self.first(x)) * 1.01 ** counted(self, int(self.training))

    def construct(self, x):
        return self.head(self.first(x)) * 1.01 ** counted(self, int(counts and self.training))

    port, module = ours_of(construct), theirs_of(forward)
    for net, start in ((port, Tensor(0)), (module, torch.tensor(0))):
        net.count = {"list": [0], "number": 0, "tensor": start}[kind]
    ladder = ladder_of(port, module, BATCHES)
    assert ladder.agrees is counts, table(ladder)
    for net in (port, module):
        assert float(net.count[0] if kind == "list" else net.count) == 0


def lines_of_counters(module, port):
    lines = ladder_of(port, module, BATCHES).coverage.not_exercised
    return [line for line in lines if "count" in line]


class Scheduled(torch.nn.Module):
    """Its scale depends on the count of its training steps, which has BatchNorm's name for it."""

    def __init__(self, base: float, name: str) -> None:
        super().__init__()
        self.base, self.name = base, name
        self.weight = t.Parameter(torch.ones(8))
        self.register_buffer(name, torch.zeros((), dtype=torch.long))

    def forward(self, x):
        getattr(self, self.name).add_(int(self.training))
        return x * self.weight / self.base ** getattr(self, self.name)


@pytest.mark.parametrize("name", ["num_batches_tracked", "my_num_batches_tracked"])
@pytest.mark.parametrize(("base", "words"), [(1.0, "counts, and"), (0.9999999, "training moves")])
def test_counts_of_batches_in_custom_layers_are_named(name, base, words):
    port = Ours(cell(lambda self, x: x * self.weight, weight=ones(8)))
    ladder = ladder_of(port, Theirs(Scheduled(base, name)), BATCHES)
    assert ladder.agrees, table(ladder)
    lines = [*ladder.changes, *ladder.coverage.not_exercised]
    (line,) = [line for line in lines if line.startswith(f"part.{name}: ")]
    assert line.startswith(f"part.{name}: {words}"), line


@pytest.mark.parametrize("norm", [t.BatchNorm1d(8), t.SyncBatchNorm(8), t.LazyBatchNorm1d()])
def test_a_count_of_batchnorm_is_no_state(norm):
    module = Theirs(norm, t.InstanceNorm1d(8, track_running_stats=True))
    module(torch.ones(2, 8, 8))
    names = [*moving_state(module), *state(module)]
    assert not [name for name in names if "num_batches" in name]


@pytest.mark.parametrize("every", [0, 2])
@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_counts_that_custom_norms_read_are_named(every, mode):
    """Its scale depends on the count from batch 500 on."""

    class Warming(t.BatchNorm1d):
        def forward(self, x):
            x = super().forward(x)
            counts = every and self.training == (mode == "training")
            return x * 0.5 if counts and self.num_batches_tracked > 500 else x

    module = theirs(
        lambda self, x: self.head(self.second(self.first(x))), first=Warming(8), second=Warming(8)
    )
    port = ours(
        lambda self, x: self.head(self.second(self.first(x))),
        first=nn.BatchNorm1d(8, momentum=0.9),
        second=nn.BatchNorm1d(8, momentum=0.9),
    )
    ladder = ladder_of(port, module, BATCHES)
    assert ladder.agrees, table(ladder)
    lines = [line for line in ladder.changes if "num_batches" in line]
    words = "first.num_batches_tracked (and 1 more): training moves it in the reference"
    assert [line.startswith(words) for line in lines] == ([True] if every else [])
    assert not [line for line in ladder.coverage.not_exercised if "num_batches" in line]


class WarmNorm(t.BatchNorm1d):
    """Outputs are halved from the third batch on."""

    def forward(self, x):
        x = super().forward(x)
        return x * 0.5 if self.num_batches_tracked > 2 else x


class PortedWarmNorm(nn.BatchNorm1d):
    """It counts in a `Parameter`, by `step`."""

    def __init__(self, step):
        super().__init__(8, momentum=0.9)
        self.step = step
        self.count = Parameter(Tensor(0, mindspore.int64), requires_grad=False)

    def construct(self, x):
        if self.training:
            ops.assign_add(self.count, Tensor(self.step, mindspore.int64))
        x = super().construct(x)
        return x * ops.where(self.count > 2 * self.step, Tensor(0.5), Tensor(1.0))


class CountingInAttribute(nn.BatchNorm1d):
    """It counts in an attribute, and halves outputs after `last` batches."""

    def __init__(self, last):
        super().__init__(8, momentum=0.9)
        self.last, self.num_batches_tracked = last, 0

    def construct(self, x):
        if self.training:
            self.num_batches_tracked += 1
        x = super().construct(x)
        return x * 0.5 if self.num_batches_tracked > self.last else x


@functools.cache
def warm():
    module = theirs(lambda self, x: self.head(self.first(x)), first=WarmNorm(8))
    return recording_of(module, BATCHES)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("corrected", [True, False])
def test_counts_that_custom_norms_read_can_be_paired(step, corrected, tmp_path):
    corrections = {}
    if corrected:
        file = tmp_path / "map.json"
        file.write_text('{"first.count": "first.num_batches_tracked"}')
        corrections["corrections"] = read_map(str(file))
    port = ours(lambda self, x: self.head(self.first(x)), first=PortedWarmNorm(step))
    ladder = ladder_of(port, warm(), **corrections)
    assert ladder.agrees is (step == 1 or not corrected), table(ladder)
    lines = [line for line in ladder.changes if "num_batches_tracked: training moves it" in line]
    assert bool(lines) is not corrected, ladder.changes


class CountingNorm(t.BatchNorm1d):
    """It counts in its own code, as norms do that were copied from torch."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked.add_(1)
        return torch.nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )


def test_another_layers_count_stays_named(tmp_path):
    """Only the first of two layers has a counterpart, by `--map`."""

    def forward(self, x):
        return self.head(self.second(self.first(x)))

    file = tmp_path / "map.json"
    file.write_text('{"first.count": "first.num_batches_tracked"}')
    module = theirs(forward, first=WarmNorm(8), second=WarmNorm(8))
    port = ours(forward, first=PortedWarmNorm(1), second=nn.BatchNorm1d(8, momentum=0.9))
    ladder = ladder_of(port, module, BATCHES[:1], corrections=read_map(str(file)))
    words = "second.num_batches_tracked: training moves it in the reference"
    assert [line for line in ladder.changes if line.startswith(words)], ladder.changes


def test_the_ports_count_is_named_beside_unread_ones():
    class Unread(t.BatchNorm1d):
        def forward(self, x):
            return super().forward(x)

    def forward(self, x):
        return self.head(self.first(x))

    module, port = theirs(forward, first=Unread(8)), ours(forward, first=CountingInAttribute(500))
    ladder = ladder_of(port, module, BATCHES, mode="pynative")
    words = "first.num_batches_tracked: updates move it in the port"
    lines = ladder.coverage.not_exercised
    assert [line for line in lines if line.startswith(words)], lines


def test_counts_of_parametrized_custom_norms_are_state():
    layer = torch.nn.utils.parametrizations.weight_norm(WarmNorm(8), dim=None)
    assert "num_batches_tracked" in state(layer)
    plain = torch.nn.utils.parametrizations.weight_norm(t.BatchNorm1d(8), dim=None)
    assert "num_batches_tracked" not in state(plain)


def test_a_count_in_the_ports_attribute_is_known():
    port = ours(lambda self, x: self.head(self.first(x)), first=CountingInAttribute(2))
    ladder = ladder_of(port, warm())
    assert ladder.agrees, table(ladder)
    assert not [line for line in ladder.changes if "training moves it" in line], ladder.changes


@pytest.mark.parametrize("kind", [CountingNorm, WarmNorm])
@pytest.mark.parametrize("mapped", [True, False])
def test_counts_are_not_paired_by_name(kind, mapped, tmp_path):
    """The port has a count of this name that never moves. A layer may be mapped."""

    class Ported(nn.BatchNorm1d):
        def __init__(self):
            super().__init__(8, momentum=0.9)
            count = Tensor(0, mindspore.int64)
            self.num_batches_tracked = Parameter(count, requires_grad=False)

    corrections = {}
    if mapped:
        file = tmp_path / "map.json"
        file.write_text('{"first": "first"}')
        corrections["corrections"] = read_map(str(file))
    module = theirs(lambda self, x: self.head(self.first(x)), first=kind(8))
    port = ours(lambda self, x: self.head(self.first(x)), first=Ported())
    ladder = ladder_of(port, module, BATCHES[:1], **corrections)
    assert ladder.agrees, table(ladder)
    lines = [line for line in ladder.changes if "num_batches_tracked: training moves it" in line]
    assert bool(lines) is (kind is WarmNorm), ladder.changes


def test_counts_of_custom_norms_may_differ_in_kind():
    """Later values of one are whole numbers, and some of the other are not finite."""

    class Own(t.BatchNorm1d):
        pass

    module = torch.nn.Sequential(Own(8), Own(8))
    module[1].num_batches_tracked = torch.tensor(1.0)
    first = moving_state(module)
    module[0].num_batches_tracked += 1
    module[1].num_batches_tracked += 0.5
    assert not moved(module, first, np.ones((2, 8), np.float32), {})


def test_a_complex_number_that_moves_is_no_counter():
    def forward(self, x):
        if self.training:
            self.turn.mul_(1 + 0.25j)
        return self.head(self.first(x)) * self.turn.abs()

    module = theirs_of(forward)
    module.register_buffer("turn", torch.tensor(1 + 0j), persistent=False)
    port = ours_of(lambda self, x: self.head(self.first(x)))
    ladder = ladder_of(port, module, BATCHES)
    assert [line for line in ladder.changes if line.startswith("turn: training moves it")]
    assert not [line for line in ladder.coverage.not_exercised if "unknown" in line]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_single_numbers_of_any_type_may_move(dtype):
    net = Averages(0)
    net.register_buffer("one", torch.tensor(1.0).to(dtype))
    first = moving_state(net)
    net.one = torch.tensor(0.5 + 0.25j).to(dtype) if dtype.is_complex else net.one.new_zeros(())
    assert [*moved(net, first, np.ones((2, 3), np.float32), {})] == ["one"]


def test_the_count_of_cumulative_averages_is_named():
    """By it, the weight of each batch in the moving statistics becomes smaller."""

    class Cumulative(nn.BatchNorm1d):
        def __init__(self) -> None:
            super().__init__(8)
            self.count = 0

        def construct(self, x):
            if self.training:
                self.count += 1
                weight = 1 / self.count
                mean, variance = x.mean(0), x.var(0)
                ops.assign(self.moving_mean, (1 - weight) * self.moving_mean + weight * mean)
                unbiased = variance * len(x) / (len(x) - 1)
                ops.assign(
                    self.moving_variance,
                    (1 - weight) * self.moving_variance + weight * unbiased,
                )
                x = (x - mean) / ops.sqrt(variance + 1e-5)
                return x * self.gamma + self.beta
            return super().construct(x)

    module = Theirs(t.BatchNorm1d(8, momentum=None))
    ladder = ladder_of(Ours(Cumulative()), module, BATCHES)
    assert ladder.agrees, table(ladder)
    lines = ladder.coverage.not_exercised
    assert [line for line in lines if line.startswith("part.num_batches_tracked: counts")]
    wrong = ladder_of(Ours(nn.BatchNorm1d(8)), module, BATCHES)
    assert "BatchNorm statistics" in title_of_stage(wrong.first_stage)


@pytest.mark.parametrize("in_buffer", [True, False])
def test_a_counter_of_both_nets_is_named(in_buffer):
    """Both divide by the same numbers in the updates, but not in later ones."""

    def construct(self, x):
        scale = 0.999 ** ops.minimum(self.count, Tensor(9))
        self.count = self.count + int(self.training)
        return self.head(self.first(x)) / scale

    start = torch.zeros((), dtype=torch.long) if in_buffer else 0
    port = ours_of(construct)
    port.count = Parameter(Tensor(0, mindspore.int64), requires_grad=False) if in_buffer else 0
    (line,) = lines_of_counters(counting("schedule", start), port)
    assert line.startswith("count: updates move it, and other values change outputs"), line
    assert "only those of 3 updates" in line


def test_an_idle_counter_in_an_attribute_is_named():
    """It changes no output, but may drive what changes a buffer, as the decay of a moving average."""
    port = ours_of(lambda self, x: self.head(self.first(x)))
    (line,) = lines_of_counters(counting("unused", 0), port)
    assert line == "count: counts, and no later value was seen to change an output"


def test_a_counter_of_the_port_alone_is_named():
    def construct(self, x):
        self.count += int(self.training)
        return self.head(self.first(x)) / (1.0 if self.count < 99 else 2.0)

    port = ours_of(construct)
    port.count = 0
    module = theirs_of(lambda self, x: self.head(self.first(x)))
    (line,) = lines_of_counters(module, port)
    assert line == "count: updates move it in the port, and no later value was tried"


def trained_there(trained, how):
    """Positions and ids, which are a Parameter in the port, and in the reference a buffer of the
    state dict, a further buffer, or frozen.
    """
    table, ids = np.arange(16, dtype=np.float32) / 16, np.arange(2)

    def forward(self, x):
        x = x + self.table[:8] + self.table[8:]
        return self.head(x + self.embed(self.ids).mean(0))

    module = theirs(forward, embed=t.Embedding(2, 8))
    module.register_buffer("ids", torch.from_numpy(ids), persistent=False)
    if how == "frozen":
        module.table = t.Parameter(torch.from_numpy(table), requires_grad=False)
    else:
        module.register_buffer("table", torch.from_numpy(table), persistent=how == "saved")

    def construct(self, x):
        x = x + self.table[:8] + self.table[8:]
        return self.head(x + self.embed(self.ids).mean(0))

    arrays = {
        name: Parameter(Tensor(value), requires_grad=name in trained)
        for name, value in (("table", table), ("ids", ids.astype(np.int32)))
    }
    return ours(construct, embed=nn.Embedding(2, 8), **arrays), module


@pytest.mark.parametrize(
    ("trained", "how"),
    [
        ("table", "saved"),
        ("table", "unsaved"),
        ("table", "frozen"),
        ("ids", "saved"),
        ("", "saved"),
    ],
)
def test_training_what_the_reference_freezes_is_named(trained, how):
    ladder = ladder_of(*trained_there([trained], how), BATCHES[:2])
    kind = "frozen" if how == "frozen" else "a buffer"
    lines = [f"{trained}: trained in the port, {kind} in the reference"] if trained else []
    assert list(stage_of(ladder, "trained arrays").hints) == lines, table(ladder)
    assert ladder.agrees is not bool(trained)


@pytest.mark.parametrize("moves", [True, False])
def test_a_momentum_teacher_moves_like_the_references(moves):
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for old, new in zip(
                    self.teacher.parameters(), self.first.parameters(), strict=True
                ):
                    old.mul_(0.999).add_(new, alpha=0.001)
        return self.head(self.first(x) + self.teacher(x).detach())

    def construct(self, x):
        if self.training and moves:
            for name in ("weight", "bias"):
                old, new = getattr(self.teacher, name), getattr(self.first, name)
                ops.assign(old, 0.999 * old + 0.001 * ops.stop_gradient(new))
        return self.head(self.first(x) + ops.stop_gradient(self.teacher(x)))

    teacher = nn.Dense(8, 8)
    for parameter in teacher.get_parameters():
        parameter.requires_grad = False
    module = theirs_of(forward, teacher=t.Linear(8, 8).requires_grad_(False))
    module.teacher.load_state_dict(module.first.state_dict())
    ladder = ladder_of(ours_of(construct, teacher=teacher), module, BATCHES)
    if moves:
        assert ladder.agrees, table(ladder)
    else:
        assert ladder.first_stage.first.name.startswith("teacher"), table(ladder)


CALLS: list[int] = []  # an item for each forward pass of all copies


class Averages(torch.nn.Module):
    """Moving averages that evaluation reads."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for index in range(count):
            self.register_buffer(f"mean{index}", torch.ones(3))
        self.seen: list[int] = []

    def forward(self, x):
        CALLS.append(0)
        total = x
        for buffer in self.buffers():
            total = total * buffer
        return total


def after_training(net: torch.nn.Module) -> dict[str, str]:
    first = moving_state(net)
    for buffer in net.buffers():
        buffer.mul_(0.5)
    return moved(net, first, np.ones((2, 3), np.float32), {})


def test_a_buffer_of_evaluation_takes_one_pass(monkeypatch):
    copies = []
    monkeypatch.setattr(torch_moved, "copied", lambda net: copies.append(0) or copy.deepcopy(net))
    CALLS.clear()
    assert after_training(Averages(9)) == {f"mean{index}": "evaluation" for index in range(9)}
    assert len(CALLS) <= 9 + 4
    assert len(copies) == 9


def test_state_in_a_list_is_no_buffer():
    class Lists(Averages):
        def forward(self, x):
            self.seen.append(0)
            return x * len(self.seen)

    assert after_training(Lists(2)) == {"mean0": "", "mean1": ""}


@pytest.mark.parametrize("kept", ["a bool", "a tensor"])
def test_what_one_trial_moves_reaches_no_other(kept):
    """Only the first value of the first buffer moves what is no buffer, and no number."""

    class Latch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.ones(3))
            self.register_buffer("second", torch.ones(3))
            self.kept = False if kept == "a bool" else torch.zeros(())

        def forward(self, x):
            if self.first[0] == 1:
                self.kept = self.kept + 1 if kept == "a tensor" else True
            return x + float(self.kept)

    assert after_training(Latch()) == {"first": "evaluation", "second": ""}


def test_buffers_that_custom_tensors_read_are_named():
    class Scaled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.sin:
                x, net = args[0].as_subclass(torch.Tensor), args[0].net
                return x * net.mean0
            return super().__torch_function__(function, types, args, kwargs)

    class Net(Averages):
        def forward(self, x):
            scaled = x.as_subclass(Scaled)
            scaled.net = self
            return torch.sin(scaled)

    assert after_training(Net(1)) == {"mean0": "evaluation"}
