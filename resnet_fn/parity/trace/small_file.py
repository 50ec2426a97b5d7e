"""Write and read a small trace: one file of some KB, to commit.

Weights and images are drawn from a seed (`drawn.draw`), so that the file has only the range of
their numbers and a hash. The file may come from a stranger: nothing in it is executed.
"""

import base64
import dataclasses
import json
import lzma
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_line
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.drawn import Range, digest, draw
from resnet_fn.parity.trace.flow import Flow
from resnet_fn.parity.trace.folder import MALFORMED, check_version, load_recording, pack, unpack
from resnet_fn.parity.trace.sketch import FEW, Sketch, count
from resnet_fn.parity.trace.small import WHOLE, SmallTrace, small_trace
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.tree import Arrays, leaves
from resnet_fn.runtime.outputs import place_to_write

_FORMAT, VERSION = "resnet_fn small trace", 1

_MANIFEST, _NUMBERS = "manifest.json.xz", "numbers.xz"

_MOST = 1 << 16  # the most bytes of all arrays that are neither drawn nor sketched

_LARGEST = 1 << 31  # the most numbers that a file may let draw, and …

_LONGEST = 1 << 24  # … the most bytes of a member

_Spec = list[Any]  # how an array is made again


def weights_title(name: str) -> str:
    """Return the title of a drawn parameter or statistic."""
    return f"weights {name}"


def inputs_title(update: int) -> str:
    """Return the title of the drawn images of an update."""
    return f"inputs of update {update}"


def save_small(
    trace: Trace, source: Source, path: Path, seed: int, ranges: Mapping[str, Range]
) -> tuple[int, list[str]]:
    """Write a small trace, and return its size in bytes, and the names of the arrays that it lacks.

    `ranges` has the ranges of the drawn arrays, by title.
    """
    titles = _titles(trace, ranges)
    names = {name: None for name in trace.run.start if weights_title(name) in ranges}
    small, stand_ins = small_trace(trace, source, seed, names)
    arrays: dict[int, tuple[int, np.ndarray]] = {}
    packed = pack(dataclasses.replace(small, sketches={}), arrays)
    shapes = {}
    numbers: list[np.ndarray] = []
    for group, sketches in small.sketches.items():
        shapes[group] = {name: sketch.shape for name, sketch in sketches.items()}
        for sketch in sketches.values():
            numbers.append(sketch.numbers)
    packed["SmallTrace"]["sketches"] = shapes
    flows = {}
    for stand_in in stand_ins:
        for made, array in stand_in.made.items():
            flows[id(array)] = made
    specs = []
    for _, array in arrays.values():
        if flow := flows.get(id(array)):
            specs.append(["flow", *flow])
        elif title := titles.get(id(array)):
            specs.append(_drawn(seed, title, array, ranges[title]))
        else:
            specs.append(_kept(array))
    _check_size(specs)
    manifest = {"format": _FORMAT, "version": VERSION, "trace": packed, "arrays": specs}
    text = json.dumps(manifest, separators=(",", ":")).encode()
    try:
        with place_to_write(path) as place, zipfile.ZipFile(place, "w") as archive:
            archive.writestr(_MANIFEST, _compressed(text))
            archive.writestr(_NUMBERS, _compressed(_planes(numbers)))
    except OSError as error:
        raise ValueError(
            f"out: {path} cannot be written ({error.strerror}); give another file"
        ) from None
    return path.stat().st_size, small.left_out


def _titles(trace: Trace, ranges: Mapping[str, Range]) -> dict[int, str]:
    """Return the titles of the drawn arrays, by the arrays' ids."""
    titles = {}
    first = {name: group[0] for group in trace.tied for name in group}
    for name, array in trace.run.start.items():
        titles[id(array)] = weights_title(first.get(name, name))
    for update, (inputs, _) in enumerate(trace.plan.batches, 1):
        for _, leaf in leaves(inputs):
            titles[id(leaf)] = inputs_title(update)
    return {of: title for of, title in titles.items() if title in ranges}


def _drawn(seed: int, title: str, array: np.ndarray, limits: Range) -> _Spec:
    if not np.array_equal(draw(seed, title, array.shape, limits), array):
        raise ValueError(f"small: {title} changed before the updates; leave out --small")
    return ["drawn", title, array.shape, *limits, digest(array)]


def _kept(array: np.ndarray) -> _Spec:
    plain = np.ascontiguousarray(array)
    text = base64.b64encode(plain.tobytes()).decode()
    return ["kept", array.dtype.str, array.shape, text]


def _check_size(specs: list[_Spec]) -> None:
    sizes = [len(base64.b64decode(spec[-1])) for spec in specs if spec[0] == "kept"]
    if sum(sizes) > _MOST:
        raise ValueError(
            f"small: inputs, labels and tables have more than {_MOST >> 10} KB; give fewer or "
            "smaller batches, or leave out --inputs (random images)"
        )


def _planes(numbers: list[np.ndarray]) -> bytes:
    """Return the first bytes of all numbers, then the second ones, and so on: they pack better."""
    none = np.zeros(0, np.float32)
    every = np.concatenate([none, *numbers]).astype("<f4")
    return every.view(np.uint8).reshape(-1, 4).T.tobytes()


def _from_planes(content: bytes) -> np.ndarray:
    planes = np.frombuffer(content, np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<f4").ravel()


def _compressed(content: bytes) -> bytes:
    return lzma.compress(content, check=lzma.CHECK_CRC32, preset=9)


def _decompressed(content: bytes) -> bytes:
    """Return the content of a member, unless it would fill the memory."""
    reader = lzma.LZMADecompressor()
    result = reader.decompress(content, _LONGEST)
    if not reader.eof:
        raise ValueError("it is cut, or too large")
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
            numbers = _from_planes(_decompressed(archive.read(_NUMBERS)))
        if manifest.get("format") != _FORMAT:
            raise ValueError("it is no small trace")
    except (*MALFORMED, lzma.LZMAError, EOFError) as error:
        raise ValueError(
            f"{path}: the file is damaged, or is no small trace ({first_line(error)}); record it "
            "again with `parity record --small`"
        ) from None
    check_version(path, "small trace", manifest, VERSION)
    try:
        return _unpacked(manifest, numbers)
    except (*MALFORMED, StopIteration) as error:
        raise ValueError(
            f"{path}: this version cannot read the small trace ({first_line(error)}); record it "
            "again"
        ) from None


def _unpacked(manifest: Mapping[str, Any], numbers: np.ndarray) -> SmallTrace:
    packed = manifest["trace"]["SmallTrace"]
    shapes, seed = packed.pop("sketches"), packed["seed"]
    specs = manifest["arrays"]
    sizes = [math.prod(_shape(spec)) for spec in specs]
    if sum(sizes) > _LARGEST:
        raise ValueError("its arrays are too large")
    arrays = {}
    for index, spec in enumerate(specs):
        arrays[str(index)] = _made(spec, seed)
    values = {name: unpack(value, arrays) for name, value in packed.items()}
    trace = SmallTrace(**values)
    left = iter(numbers)
    for group, named in shapes.items():
        whole = WHOLE.get(group, FEW)
        trace.sketches[group] = {name: _read(shape, whole, left) for name, shape in named.items()}
    run = trace.run
    run.eval_outputs = _zeros(trace, "evaluation")
    run.train_outputs = [_zeros(trace, "training")]
    run.gradients = _zeros(trace, "gradients")
    return trace


def _shape(spec: _Spec) -> list[int]:
    shape: list[int] = spec[1] if spec[0] == "flow" else spec[2]
    return shape


def _made(spec: _Spec, seed: int) -> np.ndarray:
    """Return the array that a file describes."""
    kind, *rest = spec
    if kind == "flow":
        return Flow(*rest).stand_in()
    if kind == "kept":
        dtype, shape, text = rest
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
    title, shape, low, high, expected = rest
    array = draw(seed, title, shape, Range(low, high))
    if digest(array) != expected:
        raise ValueError(f"{title} has another hash than was recorded")
    return array


def _read(shape: list[int], whole: int, numbers: Iterator[np.float32]) -> Sketch:
    size = count(shape, whole)
    own = [next(numbers) for _ in range(size)]
    return Sketch(tuple(shape), np.array(own, np.float32))


def _zeros(trace: SmallTrace, group: str) -> Arrays:
    return {name: np.zeros(sketch.shape) for name, sketch in trace.sketches[group].items()}
