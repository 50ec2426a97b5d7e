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

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.pair.name_map import whole_array
from resnet_fn.parity.record.numbers import Noted, aliases_of
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.derived import moves_evenly
from resnet_fn.parity.trace.folder import load_recording, save_recording
from small_nets import (
    Ours,
    Theirs,
    agrees,
    cell,
    ladder_of,
    module,
    ones,
    ours,
    ours_of,
    recording_of,
    stage_of,
    stored,
    t,
    theirs,
    theirs_of,
    torch,
    traced,
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


def plain(self, x):
    return self.head(self.part(x))


def reduced(self, x):
    return plain(self, x) * 0.9


def moving(step, scale=lambda self: 1.0):
    """A function that calls `step` in training, and whose outputs are multiplied by `scale`."""

    def forward(self, x):
        if self.training:
            step(self)
        return plain(self, x) * scale(self)

    return forward


def counter():
    """A buffer of 0."""
    return t.Buffer(torch.zeros((), dtype=torch.long))


def untrained(value):
    return Parameter(Tensor(value), requires_grad=False)


def trace_of(module):
    return traced(module, BATCHES)


def starting(lines, words):
    return [line for line in lines if line.startswith(words)]


def lines_of_counters(module, port):
    lines = ladder_of(port, module, BATCHES).coverage.not_exercised
    return [line for line in lines if "count" in line]


@functools.cache
def reference(read, persistent):
    """Training centres features by a batch's mean, evaluation by a mean of old ones, if it is
    `read` there.
    """

    def forward(self, x):
        x = self.part(x)
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.5).add_(0.5 * x.mean(0))
                self.calls += 1
        if read == ("training" if self.training else "evaluation"):
            x = x + 1e-3 * self.center
        return self.head(x)

    buffers = {"center": t.Buffer(torch.zeros(8), persistent=persistent), "calls": counter()}
    return recording_of(theirs_of(forward, **buffers), BATCHES)


def port(name="", keep=0.5):
    """Its state has this name, or there is none."""

    def construct(self, x):
        x = self.part(x)
        if name and self.training:
            state = getattr(self, name)
            ops.assign(state, keep * state + (1 - keep) * ops.stop_gradient(x.mean(0)))
        elif name:
            x = x + 1e-3 * getattr(self, name)
        return self.head(x)

    return ours_of(construct, **({name: untrained(np.zeros(8, np.float32))} if name else {}))


@pytest.mark.parametrize(
    ("persistent", "name"), [(True, "center"), (True, "average"), (False, "average")]
)
def test_state_that_moves_alike_agrees_under_any_name(persistent, name):
    ladder = agrees(port(name), reference("evaluation", persistent))
    assert stage_of(ladder, STAGE).verdict == "ok"
    assert not [line for line in ladder.changes if "calls" in line]


@pytest.mark.parametrize(("persistent", "name"), [(True, ""), (False, ""), (False, "average")])
def test_state_moved_by_one_side_makes_outputs_differ(persistent, name):
    """Under another name no stage compares the arrays."""
    ladder = ladder_of(port(name, keep=0.9), reference("evaluation", persistent))
    differing = [title_of_stage(stage) for stage in ladder.stages if stage.verdict == "DIFFERS"]
    assert differing == [STAGE], table(ladder)
    hint = "center: training moves it in the reference"
    assert name or ladder.first_stage.hints[0].startswith(hint)


@pytest.mark.parametrize(
    ("read", "words"), [("", "no output"), ("training", "outputs in training mode")]
)
def test_moving_buffers_not_read_in_evaluation_are_noted(read, words):
    ladder = ladder_of(port(), reference(read, persistent=False))
    assert stage_of(ladder, STAGE).verdict == "ok", table(ladder)
    (line,) = starting(ladder.changes, "center: ")
    assert f"changes {words}" in line
    assert read or ladder.agrees


def test_evaluation_uses_reference_weights_and_own_statistics(tmp_path):
    """By torch itself: evaluation with the reference's last weights and the statistics of this
    side.
    """

    def stage(recording, momentum):
        port = Ours(nn.BatchNorm1d(8, momentum=momentum))
        return stage_of(ladder_of(port, stored(recording)), STAGE)

    recording = trace_of(Theirs(t.BatchNorm1d(8)))
    item = stage(recording, 0.8).differences[0]
    run, norm = recording.run, t.BatchNorm1d(8, momentum=0.2)
    module = Theirs(norm)
    first = {name: value for name, value in run.start.items() if "running" in name}
    values = {name: torch.from_numpy(value) for name, value in (run.after[-1] | first).items()}
    module.load_state_dict(values, strict=False)
    for images, _ in BATCHES:
        norm(torch.from_numpy(images))
    outputs = module.eval()(torch.from_numpy(BATCHES[0][0])).detach()
    assert item.verdict == "DIFFERS"
    assert item.port == pytest.approx(float(outputs[item.place]), rel=1e-5)

    save_recording(recording, tmp_path / "trace")
    loaded = load_recording(tmp_path / "trace")
    assert stage(loaded, 0.9).verdict == "ok"
    loaded.run.last_outputs = {}  # as in a trace that was recorded before there was such a stage
    skipped = stage(loaded, 0.8)
    assert skipped.verdict == "undecided"
    assert "record it again" in skipped.note


def add(self, more=1):
    self.count = self.count + more
    return self.count


def add_in_place(self, more=1):
    self.count += more
    return self.count


def add_to_item(self, more=1):
    key = "count" if isinstance(self.count, dict) else 0
    self.count[key] = self.count[key] + more
    return self.count[key]


def add_to_attribute(self, more=1):
    self.count.count += more
    return self.count.count


SCALES = {
    "schedule": lambda self: 0.999 ** -float(self.count),
    "warm-up": lambda self: 1 / min(1.0, (float(self.count) + 500) / 1000),
    "unused": lambda self: 1.0,
}


@pytest.mark.parametrize("start", [counter(), t.Buffer(torch.zeros(1)), 0])
@pytest.mark.parametrize("scale", SCALES)
def test_a_counter_is_named_if_it_changes_outputs(scale, start):
    trace = trace_of(theirs_of(moving(add, SCALES[scale]), count=start))
    assert [*trace.run.moved] == (["count"] if scale != "unused" else [])


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
    forward = moving(add, SCALES["schedule"])
    module, port = theirs_of(forward, count=0, fixed=fixed), ours_of(forward, count=0)
    vars(port)["fixed"] = fixed
    lines = ladder_of(port, module, BATCHES).coverage.not_exercised
    (line,) = [line for line in lines if "count" in line]
    assert line.startswith("count: updates move it, and other values change outputs")
    assert not [line for line in lines if "fixed" in line]


@dataclasses.dataclass(slots=True)
class Slotted:
    """An object without a dict of attributes."""

    count: int = 0
    never: int = dataclasses.field(init=False)


def test_counters_deep_in_objects_are_found():
    def step(self):
        self.held["a"]["b"].count += 1

    forward = moving(step, lambda self: 0.999999 ** -self.held["a"]["b"].count)
    nets = [make(forward, held={"a": {"b": Slotted()}}) for make in (theirs_of, ours_of)]
    (line,) = lines_of_counters(*nets)
    assert line.startswith("held.a.b.count: updates move it, and other values change outputs")
    assert [net.held["a"]["b"].count for net in nets] == [0, 0]


class Counter:
    """An object of a class that is no framework's."""

    def __init__(self, count):
        self.count = count


@pytest.mark.parametrize("base", [0.999999, 1.0])
@pytest.mark.parametrize(
    ("step", "start", "name"),
    [
        (add, torch.tensor(0), "count"),
        (add, np.int64(0), "count"),
        (add_in_place, torch.zeros(1), "count"),
        (add_in_place, np.zeros(()), "count"),
        (add_to_item, [0], "count.0"),
        (add_to_item, deque([0]), "count.0"),
        (add_to_item, Counted(count=0), "count.count"),
        (add_to_item, {"count": torch.tensor(0)}, "count.count"),
        (add_to_item, {"count": 0}, "count.count"),
        (add_to_attribute, SimpleNamespace(count=0), "count.count"),
        (add_to_attribute, Counter(0), "count.count"),
        (add_to_attribute, Slotted(), "count.count"),
    ],
)
def test_a_counter_in_any_holder_is_named(step, start, name, base):
    def forward(self, x):
        return plain(self, x) / base ** float(step(self, int(self.training)))

    trace = trace_of(theirs_of(forward, count=copy.deepcopy(start)))
    assert [*trace.run.moved] == ([name] if base < 1 else [])
    assert bool(starting(trace.limits, f"{name}: counts")) is (base == 1)


def test_a_loss_in_a_tensor_is_no_counter():
    def forward(self, x):
        self.loss, self.count = x.mean(), self.loss.new_zeros(3)
        return plain(self, x) + 0 * self.loss

    def construct(self, x):
        if self.training:
            self.loss = x.mean()
        return plain(self, x) + 0 * self.loss

    port = ours_of(construct, loss=Tensor(0.5))
    ladder = agrees(port, theirs_of(forward, loss=torch.tensor(0.5)), BATCHES)
    assert not starting(ladder.coverage.not_exercised, "loss: ")
    assert float(port.loss) == 0.5


@pytest.mark.parametrize("start", [torch.tensor(1.0), 1.0])
def test_averages_in_attributes_are_no_counters(start):
    """Training averages the inputs' size, which evaluation reads."""

    def forward(self, x):
        if self.training:
            size = x.abs().mean()
            size = float(size) if isinstance(self.scale, float) else size
            self.scale = 0.9 * self.scale + 0.1 * size
        return plain(self, x) * self.scale

    module, port = theirs_of(forward, scale=start), ours_of(forward, scale=Tensor(1.0))
    ladder = agrees(port, module, BATCHES)
    assert bool(starting(ladder.changes, "scale: ")) is isinstance(start, float)


@pytest.mark.parametrize("start", [1.0, torch.tensor(1.0)])
def test_an_idle_number_that_moves_evenly_is_named(start):
    """Only values near 0.45, which are not tried, change outputs."""

    def step(self):
        self.tau *= 0.999
        self.size = float(self.part.weight.detach().abs().mean())

    forward = moving(step, lambda self: 1 + max(0, 0.05 - abs(self.tau - 0.45)))
    module = theirs_of(forward, size=0.0, tau=start)
    lines = ladder_of(ours_of(plain), module, BATCHES).coverage.not_exercised
    words = "tau: moves evenly, and no later value was seen to change an output"
    assert starting(lines, ("tau", "size")) == [words], lines


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

    def forward(self, x):
        CALLS.append(0)
        self.size = float(x.abs().mean())
        return x

    net = module(forward, size=1.0)
    first, noted = moving_state(net), Noted(torch_moved.places_of(net))
    for net.size in (0.7, 0.9):
        noted.add(torch_moved.places_of(net))
    CALLS.clear()
    assert not moved(net, first, ones(2, 3).numpy(), noted.moved(torch_moved.places_of(net)))
    assert len(CALLS) <= 2 * 4


@pytest.mark.parametrize(
    ("start", "change"),
    [
        (torch.tensor(1.0), lambda rate: rate - 0.001),
        (torch.tensor(1.0), lambda rate: rate * 1.02),
        (np.ones((), np.float32), lambda rate: rate * 0.999),
        (1.0, lambda rate: rate * 1.02),
        (t.Buffer(torch.ones(())), lambda rate: rate - 0.001),
        (1, lambda rate: rate * 0.999),
        (np.int64(1), lambda rate: rate * 0.999),
        (torch.tensor(1), lambda rate: rate * 0.999),
        (t.Buffer(torch.tensor(1), persistent=False), lambda rate: rate * 0.999),
    ],
)
def test_numbers_that_move_by_fractions_are_named(start, change):
    """It is a schedule, which has no effect yet."""

    def step(self):
        self.rate = change(self.rate)

    forward = moving(step, lambda self: 0.9 if 0.95 < float(self.rate) < 1.5 else 0.5)
    recorded = recording_of(theirs_of(forward, rate=start), BATCHES)
    ladder = agrees(ours_of(reduced), recorded)
    words = "rate: training moves it in the reference; it has no counterpart"
    (line,) = starting(ladder.changes, words)
    assert "outputs in evaluation mode" in line

    rate = untrained(1.0) if isinstance(start, t.Buffer) else Tensor(1.0)
    ladder = agrees(ours_of(moving(step, lambda self: 0.9), rate=rate), recorded)
    assert starting(ladder.coverage.not_exercised, "rate: ")[-1:] == [
        "rate: updates move it, and other values change outputs; only those of 3 updates were "
        "compared"
    ]


@pytest.mark.parametrize(("by", "always"), [(0.001, False), (-0.25, False), (0.001, True)])
def test_the_ports_numbers_moving_by_fractions_are_named(by, always):
    """They move in training, or in each forward pass."""

    def construct(self, x):
        self.rate = self.rate + by * int(self.training or always)
        return plain(self, x) * ops.minimum(Tensor(0.9), self.rate + 1)

    ladder = ladder_of(ours_of(construct, rate=Tensor(1.0)), theirs_of(reduced), BATCHES)
    assert starting(ladder.coverage.not_exercised, "rate: updates move it in the port")


def test_a_buffer_that_moves_in_each_pass_counts():
    """The first of the recorded steps is that of an evaluation and an update."""

    def forward(self, x):
        self.rate.add_(0.001)
        return plain(self, x) * (0.9 if self.rate < 1.5 else 0.5)

    def construct(self, x):
        ops.assign(self.rate, self.rate + 0.001)
        return reduced(self, x)

    module = theirs_of(forward, rate=t.Buffer(torch.ones(())))
    lines = ladder_of(ours_of(construct, rate=untrained(1.0)), module, BATCHES)
    assert starting(
        lines.coverage.not_exercised, "rate: updates move it, and other values change outputs"
    )


@pytest.mark.parametrize("start", [1.0, 0.97471178, 0.98363409])
def test_steps_are_even_but_for_rounding(start):
    values = [torch.tensor(start)]
    for _ in range(3):
        values.append(values[-1] * 0.99998)
    assert moves_evenly([float(value) for value in values])
    assert not moves_evenly([float(value) for value in (*values[:3], values[3] + 1e-6)])
    assert not moves_evenly(start + np.arange(4) * np.spacing(np.float32(start)))


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    """An object whose number only its own class writes."""

    count: int = 0


@pytest.mark.parametrize("start", [FrozenSlots(), torch.tensor(0.0)])
def test_what_a_run_takes_stays_unchanged(start):
    """There is an object or a tensor for each number."""
    is_object = isinstance(start, FrozenSlots)
    made = [FrozenSlots(number) if is_object else torch.tensor(number) for number in range(999)]

    def number(value):
        return value.count if is_object else int(value)

    def step(self):
        self.held = made[(number(self.held) + 1) % 999]

    def scale(self):
        return 0.999999 ** -number(self.held) if self.training else 1.0

    trace = trace_of(theirs_of(moving(step, scale), held=start))
    assert trace.run.moved == {"held.count" if is_object else "held": "training"}
    assert [number(value) for value in made] == list(range(999))


class Interned:
    """A value of which there is one object, which copies share."""

    def __init__(self, count):
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

    def add(self):
        super().__setitem__("count", self["count"] + 1)


def take_next(self):
    self.held = INTERNED[self.held.count + 1]


def add_fraction(self):
    self.held += Fraction(1)


def keep_size(self):
    self.held.count = self.part.weight.detach().abs().mean()


@pytest.mark.parametrize(
    ("start", "step", "names"),
    [
        (INTERNED[0], take_next, ["held.count"]),
        (ReadOnly(count=0), lambda self: self.held.add(), ["held.count"]),
        (Fraction(1, 2), add_fraction, []),
        (Interned(torch.tensor(0.5)), keep_size, []),
    ],
    ids=["interned", "read-only", "fraction", "no counter"],
)
def test_what_nobody_can_write_is_not_tried(start, step, names):
    module = theirs_of(moving(step), held=start)
    words = "updates move it, and other values could not be tried"
    assert starting(trace_of(module).limits, "held") == [f"{name}: {words}" for name in names]
    assert [value.count for value in INTERNED] == list(range(9))
    assert module.held == start


@pytest.mark.parametrize("count", [deque([0]), {"count": 0}, np.zeros(1)])
def test_a_number_that_is_gone_is_no_error(count):
    held = SimpleNamespace(count=count)
    (place,) = places_in(held=held).values()
    if isinstance(count, np.ndarray):
        del held.count
    else:
        count.clear()
    place.write(1)


def places_in(**state):
    """The places of numbers in these attributes of a layer."""
    return torch_moved.places_of(module(plain, **state))


def test_objects_in_a_circle_give_each_counter_once():
    first, second = Counter(0), Counter(0)
    first.next, second.previous = second, first
    places = places_in(first=first, second=second)
    assert {*places} - aliases_of(places, places) == {"first.count", "second.count"}


@pytest.mark.parametrize("deep", [{"count": 0}, [0]])
def test_the_shortest_path_names_a_counter(deep):
    inner = SimpleNamespace(deep=deep)
    places = places_in(far=[[inner]], near=inner)
    (name,) = {*places} - aliases_of(places, places)
    assert name.startswith("near.deep.")


@pytest.mark.parametrize("start", [{"count": 0}, dataclasses.make_dataclass("S", ["count"])(0)])
def test_a_counter_may_leave_what_it_began_in(start):
    """Two attributes hold the same object before the updates."""

    def values(self):
        return self.now if isinstance(self.now, dict) else vars(self.now)

    def step(self):
        self.now = copy.copy(self.now)
        values(self)["count"] += 1

    forward = moving(step, lambda self: 0.5 if values(self)["count"] > 500 else 1)
    trace = trace_of(theirs_of(forward, initial=start, now=start))
    assert [*trace.run.moved] == ["now.count"]


def test_a_counters_object_may_be_held_twice_later():
    """The name that training adds is nearer."""

    def step(self):
        self.inner.state.count += 1
        self.last = self.inner.state

    forward = moving(step, lambda self: 0.5 if self.inner.state.count > 500 else 1)
    inner = SimpleNamespace(state=SimpleNamespace(count=0))
    assert [*trace_of(theirs_of(forward, inner=inner)).run.moved] == ["inner.state.count"]


def test_shared_settings_hide_no_counter():
    shared = SimpleNamespace(**{f"k{i}": i for i in range(30)})
    blocks = [SimpleNamespace(shared=shared) for _ in range(50)]
    schedule = SimpleNamespace(a=SimpleNamespace(b=SimpleNamespace(step=0)))
    assert "schedule.a.b.step" in places_in(blocks=blocks, schedule=schedule)


def test_a_counter_that_gives_way_is_found():
    """From update 4 on, `current` is another of the net's own objects."""

    def forward(self, x):
        y = plain(self, x) * (self.current.rate if self.training else 1)
        if self.training:
            self.warm.rate += 1
            self.steps += 1
            if self.steps > 3:
                self.current = self.cold
        return y

    warm, cold = SimpleNamespace(rate=3.0), SimpleNamespace(rate=7.0)
    module = theirs_of(forward, warm=warm, current=warm, cold=cold, steps=0)
    trace = traced(module, BATCHES[:1] * 3)
    assert trace.run.moved["warm.rate"] == "training"


def test_few_numbers_in_large_objects_are_sought():
    """Each run looks at them."""
    pieces = {f"word {number}": [number] for number in range(999)}
    numbers = [[[number] * 50 for _ in range(50)] for number in range(50)]
    names = places_in(few=[0] * 9, many=[0] * 999, pieces=pieces, numbers=numbers, count=0)
    assert {"few.8", "count"} < names.keys()
    assert len(names) < 1001
    assert not starting(names, ("many", "pieces"))


@pytest.mark.parametrize(
    ("start", "step", "value"),
    [
        (torch.tensor(0), add, lambda self: self.count),
        (0, add, lambda self: self.count),
        ([0], add_to_item, lambda self: self.count[0]),
    ],
    ids=["tensor", "number", "list"],
)
@pytest.mark.parametrize("counts", [True, False])
def test_a_number_that_both_nets_count_agrees(counts, start, step, value):
    """The outputs of each update are 1 % larger; all else is measured with the first count."""
    forward = moving(step, lambda self: 1.01 ** value(self))
    construct = moving(lambda self: step(self, int(counts)), lambda self: 1.01 ** value(self))
    module = theirs_of(forward, count=copy.copy(start))
    port = ours_of(construct, count=Tensor(0) if isinstance(start, torch.Tensor) else start)
    ladder = ladder_of(port, module, BATCHES)
    assert ladder.agrees is counts, table(ladder)
    assert [float(value(net)) for net in (port, module)] == [0, 0]


@pytest.mark.parametrize("name", ["num_batches_tracked", "my_num_batches_tracked"])
@pytest.mark.parametrize(("base", "words"), [(1.0, "counts, and"), (0.9999999, "training moves")])
def test_counts_of_batches_in_custom_layers_are_named(name, base, words):
    """A layer's scale depends on the count of its training steps, as BatchNorm names it."""

    def forward(self, x):
        count = getattr(self, name)
        count.add_(int(self.training))
        return x * self.weight / base**count

    weight = t.Parameter(torch.ones(8))
    reference = Theirs(module(forward, weight=weight, **{name: counter()}))
    port = Ours(cell(lambda self, x: x * self.weight, weight=ones(8)))
    ladder = agrees(port, reference, BATCHES)
    lines = [*ladder.changes, *ladder.coverage.not_exercised]
    (line,) = starting(lines, f"part.{name}: ")
    assert line.startswith(f"part.{name}: {words}"), line


@pytest.mark.parametrize("norm", [t.BatchNorm1d(8), t.SyncBatchNorm(8), t.LazyBatchNorm1d()])
def test_a_count_of_batchnorm_is_no_state(norm):
    module = Theirs(norm, t.InstanceNorm1d(8, track_running_stats=True))
    module(torch.ones(2, 8, 8))
    names = [*moving_state(module), *state(module)]
    assert not [name for name in names if "num_batches" in name]


@pytest.mark.parametrize("mode", ["training", "evaluation", "neither"])
def test_counts_that_custom_norms_read_are_named(mode):
    """Its scale depends on the count from batch 500 on."""

    class Warming(t.BatchNorm1d):
        def forward(self, x):
            x = super().forward(x)
            counts = mode == ("training" if self.training else "evaluation")
            return x * 0.5 if counts and self.num_batches_tracked > 500 else x

    port = Ours(nn.BatchNorm1d(8), nn.BatchNorm1d(8))
    ladder = agrees(port, Theirs(Warming(8), Warming(8)), BATCHES)
    lines = [line for line in ladder.changes if "num_batches" in line]
    words = "part.0.num_batches_tracked (and 1 more): training moves it in the reference"
    assert [line[: len(words)] for line in lines] == ([words] if mode != "neither" else [])
    assert not [line for line in ladder.coverage.not_exercised if "num_batches" in line]


class WarmNorm(t.BatchNorm1d):
    """Outputs are halved from the third batch on."""

    def forward(self, x):
        x = super().forward(x)
        return x * 0.5 if self.num_batches_tracked > 2 else x


class PortedWarmNorm(nn.BatchNorm1d):
    """It counts in a `Parameter`, by `step`."""

    def __init__(self, step):
        super().__init__(8)
        self.step, self.count = step, untrained(0)

    def construct(self, x):
        if self.training:
            ops.assign_add(self.count, Tensor(self.step))
        x = super().construct(x)
        return x * ops.where(self.count > 2 * self.step, Tensor(0.5), Tensor(1.0))


class CountingInAttribute(nn.BatchNorm1d):
    """It counts in an attribute, and halves outputs after `last` batches."""

    def __init__(self, last):
        super().__init__(8)
        self.last, self.num_batches_tracked = last, 0

    def construct(self, x):
        if self.training:
            self.num_batches_tracked += 1
        x = super().construct(x)
        return x * 0.5 if self.num_batches_tracked > self.last else x


@functools.cache
def warm():
    return recording_of(Theirs(WarmNorm(8)), BATCHES)


@pytest.mark.parametrize(("step", "corrected"), [(1, True), (2, True), (2, False)])
def test_counts_that_custom_norms_read_can_be_paired(step, corrected):
    paired = {"part.count": whole_array("part.num_batches_tracked")} if corrected else {}
    ladder = ladder_of(Ours(PortedWarmNorm(step)), warm(), corrections=paired)
    assert ladder.agrees is (step == 1 or not corrected), table(ladder)
    lines = starting(ladder.changes, "part.num_batches_tracked: training moves it")
    assert bool(lines) is not corrected, ladder.changes


class CountingNorm(t.BatchNorm1d):
    """It counts in its own code, as norms do that were copied from torch."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked.add_(1)
        return torch.nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )


class Unread(t.BatchNorm1d):
    """It reads no count."""


def test_another_layers_count_stays_named():
    """Only the first of two layers has a counterpart, by `--map`."""
    paired = {"part.0.count": whole_array("part.0.num_batches_tracked")}
    port = Ours(PortedWarmNorm(1), nn.BatchNorm1d(8))
    reference = Theirs(WarmNorm(8), WarmNorm(8))
    ladder = ladder_of(port, reference, BATCHES[:1], corrections=paired)
    words = "part.1.num_batches_tracked: training moves it in the reference"
    assert starting(ladder.changes, words), ladder.changes


def test_the_ports_count_is_named_beside_unread_ones():
    ladder = ladder_of(Ours(CountingInAttribute(500)), Theirs(Unread(8)), BATCHES)
    lines = ladder.coverage.not_exercised
    assert starting(lines, "part.num_batches_tracked: updates move it in the port"), lines


def test_counts_of_parametrized_custom_norms_are_state():
    layer = torch.nn.utils.parametrizations.weight_norm(WarmNorm(8), dim=None)
    assert "num_batches_tracked" in state(layer)
    layer = torch.nn.utils.parametrizations.weight_norm(t.BatchNorm1d(8), dim=None)
    assert "num_batches_tracked" not in state(layer)


def test_a_count_in_the_ports_attribute_is_known():
    ladder = agrees(Ours(CountingInAttribute(2)), warm())
    assert not [line for line in ladder.changes if "training moves it" in line], ladder.changes


@pytest.mark.parametrize("kind", [CountingNorm, WarmNorm])
@pytest.mark.parametrize("corrections", [{}, {"part": whole_array("part")}])
def test_counts_are_not_paired_by_name(kind, corrections):
    """The port has a count of this name that never moves. A layer may be mapped."""
    norm = nn.BatchNorm1d(8)
    norm.num_batches_tracked = untrained(0)
    ladder = agrees(Ours(norm), Theirs(kind(8)), BATCHES[:1], corrections=corrections)
    lines = starting(ladder.changes, "part.num_batches_tracked: training moves it")
    assert bool(lines) is (kind is WarmNorm), ladder.changes


def test_counts_of_custom_norms_may_differ_in_kind():
    """Later values of one are whole numbers, and some of the other are not finite."""
    module = torch.nn.Sequential(Unread(8), Unread(8))
    module[1].num_batches_tracked = torch.tensor(1.0)
    first = moving_state(module)
    module[0].num_batches_tracked += 1
    module[1].num_batches_tracked += 0.5
    assert not moved(module, first, np.ones((2, 8), np.float32), {})


def test_a_complex_number_that_moves_is_no_counter():
    forward = moving(lambda self: self.turn.mul_(1 + 0.25j), lambda self: self.turn.abs())
    module = theirs_of(forward, turn=t.Buffer(torch.tensor(1 + 0j), persistent=False))
    ladder = ladder_of(ours_of(plain), module, BATCHES)
    assert starting(ladder.changes, "turn: training moves it")
    assert not [line for line in ladder.coverage.not_exercised if "unknown" in line]


def test_a_number_of_8_bits_may_move():
    net = Averages(0)
    net.register_buffer("rate", torch.tensor(1.0).to(torch.float8_e4m3fn))
    first = moving_state(net)
    net.rate = net.rate.new_zeros(())
    assert [*moved(net, first, np.ones((2, 3), np.float32), {})] == ["rate"]


def test_the_count_of_cumulative_averages_is_named():
    """By it, the weight of each batch in the moving statistics becomes smaller."""

    class Cumulative(nn.BatchNorm1d):
        def construct(self, x):
            if self.training:
                self.count += 1
                self.bn_train = ops.BatchNorm(True, self.eps, 1 / self.count)
            return super().construct(x)

    module, norm = Theirs(t.BatchNorm1d(8, momentum=None)), Cumulative(8)
    norm.count = 0
    ladder = agrees(Ours(norm), module, BATCHES)
    assert starting(ladder.coverage.not_exercised, "part.num_batches_tracked: counts")
    wrong = ladder_of(Ours(nn.BatchNorm1d(8)), module, BATCHES)
    assert "BatchNorm statistics" in title_of_stage(wrong.first_stage)


@pytest.mark.parametrize(("start", "ported"), [(counter(), untrained(0)), (0, 0)])
def test_a_counter_of_both_nets_is_named(start, ported):
    """Both divide by the same numbers in the updates, but not in later ones."""
    construct = moving(add, lambda self: 0.999 ** -ops.minimum(self.count, Tensor(9)))
    module = theirs_of(moving(add, SCALES["schedule"]), count=start)
    (line,) = lines_of_counters(module, ours_of(construct, count=ported))
    assert line.startswith("count: updates move it, and other values change outputs"), line
    assert "only those of 3 updates" in line


def test_an_idle_counter_in_an_attribute_is_named():
    """It changes no output, but may drive what changes a buffer, as the decay of a moving average."""
    (line,) = lines_of_counters(theirs_of(moving(add), count=0), ours_of(plain))
    assert line == "count: counts, and no later value was seen to change an output"


def test_a_counter_of_the_port_alone_is_named():
    construct = moving(add, lambda self: 1.0 if self.count < 99 else 0.5)
    (line,) = lines_of_counters(theirs_of(plain), ours_of(construct, count=0))
    assert line == "count: updates move it in the port, and no later value was tried"


HOLDERS = {
    "saved": t.Buffer,
    "unsaved": functools.partial(t.Buffer, persistent=False),
    "frozen": functools.partial(t.Parameter, requires_grad=False),
}


@pytest.mark.parametrize(
    ("trained", "kind"), [*(("table", kind) for kind in HOLDERS), ("ids", "saved"), ("", "saved")]
)
def test_training_what_the_reference_freezes_is_named(trained, kind):
    """Positions and ids are a Parameter in the port, and in the reference a buffer of the state
    dict, a further buffer, or frozen.
    """
    values, ids = np.arange(16, dtype=np.float32).reshape(2, 8) / 16, np.arange(2)

    def forward(self, x):
        return self.head(x + self.table[self.ids].mean(0))

    module = theirs(
        forward,
        table=HOLDERS[kind](torch.from_numpy(values)),
        ids=t.Buffer(torch.from_numpy(ids), persistent=False),
    )
    port = ours(
        forward,
        table=Parameter(Tensor(values), requires_grad=trained == "table"),
        ids=Parameter(Tensor(ids.astype(np.int32)), requires_grad=trained == "ids"),
    )
    ladder = ladder_of(port, module, BATCHES[:2])
    what = "frozen" if kind == "frozen" else "a buffer"
    lines = [f"{trained}: trained in the port, {what} in the reference"] if trained else []
    assert list(stage_of(ladder, "trained arrays").hints) == lines, table(ladder)
    assert ladder.agrees is not bool(trained)


@pytest.mark.parametrize("moves", [True, False])
def test_a_momentum_teacher_moves_like_the_references(moves):
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.teacher.weight.mul_(0.999).add_(self.part.weight, alpha=0.001)
        return self.head(self.part(x) + self.teacher(x))

    def construct(self, x):
        if self.training and moves:
            old, new = self.teacher.weight, self.part.weight
            ops.assign(old, 0.999 * old + 0.001 * ops.stop_gradient(new))
        return self.head(self.part(x) + self.teacher(x))

    teacher = nn.Dense(8, 8)
    for parameter in teacher.get_parameters():
        parameter.requires_grad = False
    module = theirs_of(forward, teacher=t.Linear(8, 8).requires_grad_(False))
    module.teacher.load_state_dict(module.part.state_dict())
    ladder = ladder_of(ours_of(construct, teacher=teacher), module, BATCHES)
    assert ladder.agrees is moves, table(ladder)
    assert moves or ladder.first_stage.first.name.startswith("teacher"), table(ladder)


CALLS: list[int] = []  # an item for each forward pass of all copies


class Averages(torch.nn.Module):
    """Moving averages that evaluation reads."""

    def __init__(self, count):
        super().__init__()
        for index in range(count):
            self.register_buffer(f"mean{index}", torch.ones(3))
        self.seen = []

    def forward(self, x):
        CALLS.append(0)
        total = x
        for buffer in self.buffers():
            total = total * buffer
        return total


def after_training(net):
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


@pytest.mark.parametrize("start", [False, torch.zeros(())])
def test_what_one_trial_moves_reaches_no_other(start):
    """Only the first value of the first buffer moves what is no buffer, and no number."""

    def forward(self, x):
        if self.first[0] == 1:
            self.kept = True if start is False else self.kept + 1
        return x + float(self.kept)

    buffers = {name: t.Buffer(torch.ones(3)) for name in ("first", "second")}
    net = module(forward, kept=start, **buffers)
    assert after_training(net) == {"first": "evaluation", "second": ""}


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
