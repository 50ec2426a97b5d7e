"""Find the buffers and numbers of a torch module that training moves, and whether outputs need
them.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch

from resnet_fn.parity.record.layers import is_custom
from resnet_fn.parity.record.numbers import Place, aliases_of, numbers_of
from resnet_fn.parity.record.randomness import is_apart
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import (
    call,
    counts_of_batches,
    dtype_of,
    outputs_of,
    tensors,
)
from resnet_fn.parity.trace.data import (
    IDLE_COUNTER,
    IDLE_NUMBER,
    STATISTICS_NAMES,
    UNTRIED_NUMBER,
)
from resnet_fn.parity.trace.tree import Arrays, Tree

# So many updates later, the value of a counter may still change an output: by a schedule, a warm-up
# or, because these are prime numbers, every few updates.
_LATER_COUNTS = (1, 997, 99_991)

Value: TypeAlias = torch.Tensor | float

# other values of buffers and numbers, by name
Trial: TypeAlias = Mapping[str, Value]


def moving_state(module: torch.nn.Module) -> dict[str, Value]:
    """Return copies of the buffers of a module, without statistics, and the numbers in attributes
    of its layers, by path.
    """
    values: dict[str, Value] = {**_numbers(module)}
    left_out = counts_of_batches(module)
    for names in _custom_counts(module).values():
        left_out -= names
    for name, buffer in module.named_buffers():
        leaf = name.rpartition(".")[2]
        if name not in left_out and leaf not in STATISTICS_NAMES:
            values[name] = buffer.clone()
    return values


def _custom_counts(module: torch.nn.Module) -> dict[type, set[str]]:
    """Return the names of BatchNorm's counts in layers of each custom class, which may use them."""
    counts: dict[type, set[str]] = {}
    for name in counts_of_batches(module):
        layer = module.get_submodule(name.rpartition(".")[0])
        if is_custom(layer):
            counts.setdefault(type(layer), set()).add(name)
    return counts


def moved(
    module: torch.nn.Module,
    first: Mapping[str, Value],
    inputs: Tree,
    numbers: Mapping[str, bool],
) -> dict[str, str]:
    """For each buffer that training changed, return the mode in which its change alters an output,
    or "" if none. Counters and attributes are left out if they alter no output. The counts of a
    custom BatchNorm are tried together with those of all layers of its class.

    `first` is the `moving_state` from before the updates, and `numbers` are those in attributes that
    the updates have moved (`Noted.moved`). Call this outside of the modes of a run, which would note
    its calls.
    """
    trials: dict[str, list[Trial]] = {}  # with the first value, and with later ones of a counter
    kept = []  # named even if no output reads them: not counters and attributes
    aliases = aliases_of(places_of(module), first)
    for name, value in moving_state(module).items():
        before = first.get(name)
        if before is None or name in aliases or _is_same(before, value):
            continue
        is_buffer = isinstance(value, torch.Tensor)
        if not is_buffer and name not in numbers and not _counts(before, value):
            continue
        # evaluation may count what no update does
        counts = is_buffer or numbers.get(name, True)
        later = _later(before, value) if counts else []
        trials[name] = [{name: number} for number in (before, *later)]
        if is_buffer and not _counts(before, value):
            kept.append(name)
    of_class: dict[str, list[str]] = {}  # counts of the same class as the first
    for names in _custom_counts(module).values():
        counting = [name for name in sorted(names) if name in trials]
        if not counting:
            continue
        of_class[counting[0]] = counting
        alike = [trials.pop(name) for name in counting]
        together = []
        for of_layers in zip(*alike, strict=False):  # a layer may have fewer later values
            trial = _merged(of_layers)
            together.append(trial)
        trials[counting[0]] = together
    modes: dict[str, str] = {}
    for mode in ("evaluation", "training"):
        left = dict(trials)
        for name in modes:
            del left[name]
        if left:
            read = _read(module, inputs, mode == "training", left)
            modes.update(dict.fromkeys(read, mode))
    changes = {}
    for name in trials:
        if name in modes or name in kept:
            named = of_class.get(name, [name])
            changes.update(dict.fromkeys(named, modes.get(name, "")))
    return changes


def idle_numbers(
    module: torch.nn.Module,
    first: Mapping[str, Value],
    numbers: Mapping[str, bool],
    altering: Mapping[str, str],
) -> list[str]:
    """Return a line for each number in an attribute that training has changed by a whole number, or
    evenly (`numbers`, as in `moved`), and that is not among those that alter an output: what
    `moved` returns. There is a line, too, for each of which no other value could be tried.
    """
    idle: dict[str, float] = {}
    places = places_of(module)
    left_out = {*altering, *aliases_of(places, first)}
    for name, place in places.items():
        value, before = place.value(), first.get(name)
        if name in left_out or before is None or _is_same(before, value):
            continue
        if name in numbers or _counts(before, value):
            idle[name] = value
    if not idle:
        return []
    tried = places_of(copied(module))
    for name in _shared(module, tried):
        del tried[name]
    lines = []
    for name, value in idle.items():
        before = first[name]
        if name not in tried or not tried[name].accepts(before):
            lines.append(f"{name}: {UNTRIED_NUMBER}")
        elif _counts(before, value):
            lines.append(f"{name}: {IDLE_COUNTER}")
        elif numbers.get(name):
            lines.append(f"{name}: {IDLE_NUMBER}")
    return lines


def _read(
    module: torch.nn.Module, inputs: Tree, train: bool, trials: Mapping[str, Sequence[Trial]]
) -> Iterator[str]:
    """Yield the names of `trials` of which one of the values alters an output."""
    try:
        outputs = _Outputs(module, inputs, train)
    except Exception:  # the module does not run in this mode
        return

    def alters(trial: Trial) -> bool:
        try:
            return outputs.alter(trial)
        except Exception:  # a place in a queue, for example, must stay within the queue
            return False

    for name, values in trials.items():
        if any(map(alters, values)):
            yield name


class _Outputs:
    """The outputs of a copy of a module, and whether other buffers and numbers alter them.

    The buffers and numbers are put back before each run. Other state, such as a list, is not: after
    a run with other outputs, or one that fails, there is a new copy; and a module whose outputs
    change from run to run is copied for each run.
    """

    def __init__(self, module: torch.nn.Module, inputs: Tree, train: bool) -> None:
        self._module, self._inputs, self._train = module, inputs, train
        self._copy: torch.nn.Module | None = None
        self._shared: set[str] = set()  # numbers of the copy that are those of the module
        self._places: Mapping[str, Place] = {}  # numbers of a new copy
        self._repeats = True
        self._usual = self._with({})
        self._repeats = not any(self.alter({}) for _ in range(2))

    def alter(self, changes: Mapping[str, Value]) -> bool:
        """Return whether the outputs are others with these changes."""
        outputs = self._with(changes)
        is_other = is_apart(self._usual, outputs)
        if is_other or not self._repeats:
            self._copy = None
        return is_other

    def _with(self, changes: Mapping[str, Value]) -> Arrays:
        copy, self._copy = self._copy, None  # none is kept if the run fails
        places = {} if copy is None else places_of(copy)
        if copy is None or not self._has_its_own(places):
            copy = copied(self._module).train(self._train)
            places = self._places = places_of(copy)
            self._shared = _shared(self._module, places)
        else:
            self._write(copy, places, _numbers(self._module))
            self._write(copy, places, dict(self._module.named_buffers()))
        self._write(copy, places, changes)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            inputs = tensors(self._inputs, dtype_of(self._module))
            outputs = outputs_of(call(copy, inputs))
        self._copy = copy
        return outputs

    def _has_its_own(self, places: Mapping[str, Place]) -> bool:
        """Return whether no run has put other objects, which may be the user's, into a copy with
        these numbers.
        """
        first = self._places
        return all(
            name in first and place.owner is first[name].owner and place.array is first[name].array
            for name, place in places.items()
        )

    def _write(
        self, copy: torch.nn.Module, places: Mapping[str, Place], values: Mapping[str, Value]
    ) -> None:
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                layer, _, leaf = name.rpartition(".")
                setattr(copy.get_submodule(layer), leaf, value.clone())
            elif name in places and name not in self._shared:
                places[name].write(value)


def _shared(module: torch.nn.Module, places: Mapping[str, Place]) -> set[str]:
    """Return the paths of numbers in objects that a new copy of a module, which has the numbers in
    `places`, shares with it, such as the members of an Enum.
    """
    own = places_of(module)
    return {name for name, place in places.items() if name in own and place.is_in(own[name])}


def places_of(module: torch.nn.Module) -> dict[str, Place]:
    """Return the places of numbers in the attributes of a module's layers, by path."""
    layers = module.named_modules()
    of_framework = vars(torch.nn.Module())
    buffers = {id(buffer) for buffer in module.buffers()}
    places = {}
    for name, place in numbers_of(layers, of_framework).items():
        if id(place.array) not in buffers:
            places[name] = place
    return places


def _numbers(module: torch.nn.Module) -> dict[str, float]:
    numbers = {}
    for name, place in places_of(module).items():
        numbers[name] = place.value()
    return numbers


def _is_same(before: Value, value: Value) -> bool:
    """Return whether a number is unchanged, or has another shape than before. Its type may be
    another one: an integer may move by fractions.
    """
    if isinstance(before, torch.Tensor) and isinstance(value, torch.Tensor):
        return before.shape != value.shape or torch.equal(before, value)
    if isinstance(before, torch.Tensor) or isinstance(value, torch.Tensor):  # no buffer any more
        return True
    return before == value


def _is_number(value: Value) -> bool:
    """Return whether a value is one number to which others can be added."""
    if not isinstance(value, torch.Tensor):
        return True
    if value.numel() != 1 or value.dtype == torch.bool or value.is_complex():
        return False
    return not value.is_floating_point() or value.element_size() > 1  # torch adds none of 8 bits


def _counts(before: Value, value: Value) -> bool:
    """Return whether one number has changed by a whole number."""
    return _is_number(value) and float(value - before).is_integer()


def _later(before: Value, value: Value) -> list[Value]:
    """Return values that one number may have in later updates."""
    if not _is_number(value):
        return []
    if _counts(before, value):
        return [value + more for more in _LATER_COUNTS]
    later = []
    step = value - before
    for more in _LATER_COUNTS:
        later.append(value + more * step)
        if before:
            factor = value / before
            with contextlib.suppress(OverflowError):  # of Python's numbers
                later.append(value * factor**more)
    return [number for number in later if math.isfinite(float(number))]


def _merged(trials: Iterable[Trial]) -> Trial:
    merged: dict[str, Value] = {}
    for trial in trials:
        merged.update(trial)
    return merged
