"""Write and read a small trace: one file to commit, with a sketch of each recorded array.

Weights and images are drawn from a seed (`drawn.draw`), so that the file has only the range of their
numbers and a hash. A small trace may come from a stranger: nothing in it is executed.
"""

import base64
import dataclasses
import json
import lzma
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.derived import changes
from resnet_fn.parity.trace.drawn import Range, digest, draw
from resnet_fn.parity.trace.folder import MALFORMED, load_recording, pack, unpack
from resnet_fn.parity.trace.layer import Layer, fingerprint
from resnet_fn.parity.trace.sketch import Sketch, count, sketch
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.stages import FIRST
from resnet_fn.parity.trace.tree import Arrays

_FORMAT, _VERSION = "resnet_fn small trace", 1

_MANIFEST, _NUMBERS = "manifest.json.xz", "numbers.xz"

_TABLE = 4096  # the most bytes of an untrained array that is kept

_INPUTS = 1 << 16  # the most bytes of all arrays that are kept

_LARGEST = 1 << 31  # the most numbers that a file may let draw, and …

_LONGEST = 1 << 24  # … the most bytes of a member

Sketches = dict[str, dict[str, Sketch]]  # by group of arrays, then by name


@dataclasses.dataclass
class SmallTrace(Trace):
    """A trace with sketches in place of most arrays.

    Arrays of zeros stand for those of `run`. Layers have arrays that show only which of them are
    equal.
    """

    seed: int = 0  # of the drawn arrays, and of the places in the sketches
    sketches: Sketches = dataclasses.field(default_factory=dict)
    updates: int = 0  # how many recorded updates the last change has
    left_out: list[str] = dataclasses.field(default_factory=list)  # names of large tables


def after_first_and_last(run: Run) -> list[Arrays]:
    """Return the arrays after each recorded update, those of the first one for all but the last."""
    return [*run.after[:1] * (len(run.after) - 1), *run.after[-1:]]


OF_RUN: dict[str, Callable[[Run], Mapping[Any, np.ndarray]]] = {
    "evaluation": lambda run: run.eval_outputs,
    "training": lambda run: run.train_outputs[0],
    "gradients": lambda run: run.gradients,
    "clipped": lambda run: {} if run.clipped is run.gradients else run.clipped,
    "change": lambda run: changes(run, run.after[0]) if run.after else {},
    "last change": lambda run: changes(run, run.after[-1]) if len(run.after) > 1 else {},
    "average": lambda run: changes(run, run.average),
    "last evaluation": lambda run: run.last_outputs,
}
"""The groups of arrays of a run that have sketches."""


def of_layers(which: str, mode: str) -> str:
    """Return the group of the inputs or outputs (`which`) of layers in a mode."""
    return f"{which} of layers, {mode}"


def title_in(group: str, name: str) -> str:
    """Return the name under which the places of a sketch are chosen."""
    return f"{group}: {name}"


def save_small(
    trace: Trace, source: Source, path: Path, seed: int, ranges: Mapping[str, Range]
) -> int:
    """Write a small trace, and return its size in bytes.

    `source` gives the rounding with flipped ties. `ranges` has the drawn arrays, as "weights NAME" and "inputs of update N".
    """
    if trace.ties is not None:
        raise ValueError(
            f"small: rounding decides at {few(trace.ties.lines)}, and a small trace cannot hold "
            "both decisions; leave out --small"
        )
    small, drawn = _small(trace, seed, ranges)
    small.flipped = _widest(source)
    arrays: dict[int, tuple[int, np.ndarray]] = {}
    packed = pack(dataclasses.replace(small, sketches={}), arrays)
    flows = {id(array): spec for array, spec in drawn}
    kept = [flows.get(id(array)) or _inline(array) for _, array in arrays.values()]
    if sum(len(one[-1]) for one in kept if one[0] == "kept") > _INPUTS:
        raise ValueError(
            f"small: inputs and labels have more than {_INPUTS >> 10} KB; give fewer or smaller "
            "batches, or leave out --inputs (random images)"
        )
    sketches = small.sketches.values()
    numbers = [one.numbers for group in sketches for one in group.values()]
    packed["SmallTrace"]["sketches"] = {
        group: {name: list(one.shape) for name, one in of_group.items()}
        for group, of_group in small.sketches.items()
    }
    manifest = {"format": _FORMAT, "version": _VERSION, "trace": packed, "arrays": kept}
    text = json.dumps(manifest, separators=(",", ":")).encode()
    # the first bytes of all numbers, then the second ones, and so on: alike, so they pack better
    planes = np.concatenate([np.zeros(0, "<f4"), *numbers]).view(np.uint8).reshape(-1, 4).T
    try:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(_MANIFEST, _compressed(text))
            archive.writestr(_NUMBERS, _compressed(planes.tobytes()))
    except OSError as error:
        raise ValueError(
            f"out: {path} cannot be written ({error.strerror}); give another file"
        ) from None
    return path.stat().st_size


def _compressed(content: bytes) -> bytes:
    return lzma.compress(content, check=lzma.CHECK_CRC32, preset=9)


def _decompressed(content: bytes) -> bytes:
    """Return the content of a member, unless it would fill the memory."""
    reader = lzma.LZMADecompressor()
    result = reader.decompress(content, _LONGEST)
    if not reader.eof:
        raise ValueError("it is too large, or cut")
    return result


_Spec = list[Any]  # how an array is made again


def _small(
    trace: Trace, seed: int, ranges: Mapping[str, Range]
) -> tuple[SmallTrace, list[tuple[np.ndarray, _Spec]]]:
    """Return what is kept of a trace, and how its arrays are made again."""
    specs: list[tuple[np.ndarray, _Spec]] = []
    run = trace.run
    start: Arrays = {}
    left_out = []
    for name, array in run.start.items():
        if spec := _drawn_again(trace, seed, name, array, ranges):
            specs.append((array, spec))
        elif array.nbytes > _TABLE:
            left_out.append(name)
            continue
        start[name] = array
    for update, (inputs, _) in enumerate(trace.plan.batches, 1):
        name = f"inputs of update {update}"
        if name in ranges:
            specs.append((inputs, _spec(seed, name, inputs, ranges[name])))
    sketches = {
        group: {key: sketch(one, seed, title_in(group, str(key))) for key, one in of(run).items()}
        for group, of in OF_RUN.items()
    }
    layers = {}
    for mode in ("eval", "train"):
        layers[mode], made = _flow(trace.layers[mode])
        specs += made
        sketches |= _sketches_of_layers(trace.layers[mode], mode, seed)
    untrained = {name: one for name, one in start.items() if name in trace.constants}
    kept = {
        "initial": untrained,
        "layers": layers,
        "run": _without_arrays(run, start),
        "rounding": _few_digits(trace.rounding),
        "notes": trace.notes,
        "seed": seed,
        "sketches": sketches,
        "updates": len(run.after),
        "left_out": left_out,
    }
    names = (
        *("framework", "plan", "unread", "tied", "trainable", "constants", "buffers"),
        *("environment", "random_eval", "random_train", "drops", "limits", "file"),
        "optimizer_settings",
    )
    kept |= {name: getattr(trace, name) for name in names}
    return SmallTrace(**kept), specs


def _drawn_again(
    trace: Trace, seed: int, name: str, array: np.ndarray, ranges: Mapping[str, Range]
) -> _Spec:
    """Return how an array of the net is drawn, or [] if it is not."""
    group = next((group for group in trace.tied if name in group), (name,))
    title = f"weights {group[0]}"
    return _spec(seed, title, array, ranges[title]) if title in ranges else []


def _spec(seed: int, title: str, array: np.ndarray, limits: Range) -> _Spec:
    again = draw(seed, title, array.shape, limits)
    if not np.array_equal(again, array):
        raise ValueError(f"small: {title} changed before the updates; leave out --small")
    return ["drawn", title, list(array.shape), *limits, digest(array)]


def _inline(array: np.ndarray) -> _Spec:
    plain = np.ascontiguousarray(array)
    text = base64.b64encode(plain.tobytes()).decode()
    return ["kept", array.dtype.str, list(array.shape), text]


def _without_arrays(run: Run, start: Arrays) -> Run:
    return dataclasses.replace(
        Run({}, start, run.rates),
        losses=run.losses,
        norms=run.norms,
        no_gradient=run.no_gradient,
        moved=run.moved,
    )


def _few_digits(rounding: Rounding, digits: int = 2) -> Rounding:
    """Return the rounding of the updates themselves, with few digits."""
    return {
        stage: {key: float(f"{error:.{digits}g}") for key, error in errors.items()}
        for stage, errors in rounding.items()
        if errors and not (stage.batch != FIRST or stage.masked or stage.drawn or stage.update)
    }


def _widest(source: Source) -> dict[float, tuple[Rounding, int]]:
    """Return the rounding with flipped ties of the widest kind."""
    width = max(source.tie_widths, default=0.0)
    flipped = source.flipped_ties(width)
    return {width: (_few_digits(flipped[0], 1), flipped[1])} if flipped else {}


def _flow(layers: list[Layer]) -> tuple[list[Layer], list[tuple[np.ndarray, _Spec]]]:
    """Return layers whose arrays only show which of them are equal, or are another one's ReLU."""
    numbers: dict[str, tuple[int, bool]] = {}
    made: dict[tuple[Any, ...], np.ndarray] = {}

    def stand_in(array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        key = fingerprint(array)
        if key not in numbers:
            number = len(numbers) + 1
            numbers[key] = number, False
            numbers.setdefault(fingerprint(np.maximum(array, 0)), (number, True))
        of = (array.shape, *numbers[key])
        if of not in made:
            made[of] = _of_flow(*of)
        return made[of]

    flow = []
    for one in layers:
        arrays = {"input": stand_in(one.input), "output": stand_in(one.output)}
        rounding = {
            name: float(f"{getattr(one, name):.2g}")
            for name in ("input_rounding", "output_rounding")
        }
        flow.append(dataclasses.replace(one, **arrays, **rounding, further=()))
    return flow, [(array, ["flow", *of]) for of, array in made.items()]


def _of_flow(shape: Any, number: int, positive: bool) -> np.ndarray:
    """Return an array of ± `number`, or of this number and 0."""
    array = np.full(math.prod(shape), float(number))
    array[1::2] = 0 if positive else -number
    return array.reshape(shape)


def _sketches_of_layers(layers: list[Layer], mode: str, seed: int) -> Sketches:
    """Return the sketches of outputs, and of inputs that are no layer's output."""
    inputs, outputs = of_layers("inputs", mode), of_layers("outputs", mode)
    result: Sketches = {inputs: {}, outputs: {}}
    known: set[str] = set()
    for one in layers:
        if one.input is not None and fingerprint(one.input) not in known:
            result[inputs][one.title] = sketch(one.input, seed, title_in(inputs, one.title))
        if one.output is not None:
            known.add(fingerprint(one.output))
            result[outputs][one.title] = sketch(one.output, seed, title_in(outputs, one.title))
    return result


def load_trace(path: Path) -> Trace:
    """Read a trace, which is a folder, or a small one, which is a file."""
    return load_small(path) if path.is_file() else load_recording(path)


def load_small(path: Path) -> SmallTrace:
    """Read a small trace, and draw its weights and images.

    Raises ValueError if the file is damaged or of another version, or if an array is drawn
    otherwise than it was.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(_decompressed(archive.read(_MANIFEST)))
            planes = np.frombuffer(_decompressed(archive.read(_NUMBERS)), np.uint8)
        if manifest.get("format") != _FORMAT:
            raise ValueError("it is no small trace")
    except (*MALFORMED, lzma.LZMAError, EOFError) as error:
        raise ValueError(
            f"{path}: the file is damaged, or is no small trace ({first_line(error)}); record it "
            "again with `parity record --small`"
        ) from None
    if manifest.get("version") != _VERSION:
        got = manifest.get("version")
        raise ValueError(
            f"{path}: the small trace has version {got}, but this package reads {_VERSION}; record "
            "it again"
        )
    try:
        bytes_of_numbers = np.ascontiguousarray(planes.reshape(4, -1).T)
        return _unpacked(manifest, bytes_of_numbers.view("<f4").ravel())
    except MALFORMED as error:
        raise ValueError(
            f"{path}: this version cannot read the small trace ({first_line(error)}); record it "
            "again"
        ) from None


def _unpacked(manifest: Mapping[str, Any], numbers: np.ndarray) -> SmallTrace:
    packed = manifest["trace"]["SmallTrace"]
    shapes, seed = packed.pop("sketches"), packed["seed"]
    if sum(_numbers_of(spec) for spec in manifest["arrays"]) > _LARGEST:
        raise ValueError("its arrays are too large")
    arrays = {str(index): _made(spec, seed) for index, spec in enumerate(manifest["arrays"])}
    trace = SmallTrace(**{name: unpack(value, arrays) for name, value in packed.items()})
    left = iter(numbers)
    trace.sketches = {
        group: {name: _read(shape, left) for name, shape in named.items()}
        for group, named in shapes.items()
    }
    run = trace.run
    run.eval_outputs = _zeros(trace, "evaluation")
    run.train_outputs = [_zeros(trace, "training")]
    run.gradients = _zeros(trace, "gradients")
    return trace


def _numbers_of(spec: _Spec) -> int:
    shape = spec[1] if spec[0] == "flow" else spec[2]
    return math.prod(shape)


def _made(spec: _Spec, seed: int) -> np.ndarray:
    """Return the array that a file describes."""
    kind, *rest = spec
    if kind == "flow":
        return _of_flow(*rest)
    if kind == "kept":
        dtype, shape, text = rest
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
    title, shape, low, high, expected = rest
    array = draw(seed, title, shape, Range(low, high))
    if digest(array) != expected:
        raise ValueError(f"{title} has another hash than was recorded")
    return array


def _read(shape: list[int], numbers: Iterator[np.float32]) -> Sketch:
    own = [next(numbers) for _ in range(count(shape))]
    return Sketch(tuple(shape), np.array(own, np.float32))


def _zeros(trace: SmallTrace, group: str) -> Arrays:
    return {name: np.zeros(one.shape) for name, one in trace.sketches[group].items()}
