"""A trace comes back as it was written; whatever is wrong with its files is named."""

import dataclasses
import hashlib
import io
import itertools
import json
import shutil
import types
import typing
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resnet_fn.config import cli
from resnet_fn.parity.__main__ import main
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.folder import (
    MALFORMED,
    hash_of_manifest,
    load_recording,
    pack,
    save_recording,
    unpack,
)
from resnet_fn.parity.trace.plan import OptimizerPlan, Plan
from resnet_fn.recipes import recipe

TRACE = Path(__file__).parents[1] / "acceptance" / "trace"
IDS = np.arange(4, dtype=np.int64).reshape(2, 2)
INPUTS = {"ids": IDS, "mask": (IDS > 1, IDS.astype(np.float32))}
USE = recipe("digits").changed(milestones=())
PLAN = plan_of(USE, [(INPUTS, np.ones(2, np.int32))] * 2, accumulate=2, seed=3, custom_loss=True)


COUNTER, RNG = itertools.count(), np.random.default_rng(0)
LEAVES = {
    str: lambda: f"../Ω {next(COUNTER)}",  # awkward in files
    int: lambda: next(COUNTER),
    float: lambda: [0.1, -0.0, np.inf, np.nan][next(COUNTER) % 4],
    bool: lambda: True,
    np.ndarray: lambda: RNG.normal(size=(2, 3)).astype([np.float32, float][next(COUNTER) % 2]),
    Any: lambda: (3, "x"),
    Plan: lambda: PLAN,
}


def filled(kind, *inside):
    """A value of this type, of which each field is filled, but those of a type inside itself."""
    if kind in LEAVES:
        return LEAVES[kind]()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind).items()
        return kind(**{name: filled(hint, kind, *inside) for name, hint in hints})
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, Sequence):
        return [] if parts[0] in inside else [filled(parts[0], *inside) for _ in range(2)]
    if origin is tuple:
        return tuple(filled(part, *inside) for part in parts if part is not ...)
    if origin in (dict, Mapping):
        count = next(COUNTER) % 2 + 1
        return dict([filled(part, *inside) for part in parts] for _ in range(count))
    assert origin in (types.UnionType, typing.Union), kind  # a trace has nothing but data
    values = [filled(part, *inside) for part in parts if part is not type(None)]
    return values[0]


def test_a_plan_has_only_data_in_its_fields():
    for kind in typing.get_type_hints(Plan).values():
        filled(kind)


@pytest.fixture(scope="module")
def recording():
    trace = filled(Trace)
    trace.run.dropped = [filled(Run)]
    return trace


@pytest.fixture(scope="module")
def written(recording, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces") / "trace"
    size = save_recording(recording, folder)
    assert size == sum(path.stat().st_size for path in folder.iterdir())
    return folder


def to_the_bit(trace):
    """Each number of it in all digits, with types and shapes."""
    with np.printoptions(threshold=10**6, floatmode="unique"):
        return repr(trace)


def test_everything_comes_back_to_the_bit(recording, written):
    assert to_the_bit(load_recording(written)) == to_the_bit(recording)


@pytest.mark.parametrize("wrong", [{}, {"beta2": 0.9}, {"beta2": 0.9, "epsilon": "x"}, [0.9]])
def test_an_optimizer_without_its_settings_is_malformed(wrong):
    stored = pack(OptimizerPlan("lamb", 0.9, 0.01, True, {}), {})
    stored["OptimizerPlan"]["settings"] = wrong
    with pytest.raises(MALFORMED):
        unpack(stored, {})


def test_layers_may_be_left_out(recording, tmp_path):
    assert save_recording(recording, tmp_path / "small", layers="none") < save_recording(
        recording, tmp_path / "whole"
    )
    for mode, layers in load_recording(tmp_path / "small").layers.items():
        whole = recording.layers[mode]
        bare = [dataclasses.replace(layer, input=None, output=None) for layer in whole]
        assert to_the_bit(layers) == to_the_bit(bare)


def test_a_folder_that_is_not_empty_is_rejected(recording, written):
    with pytest.raises(ValueError, match=r"^out: .*trace is not empty; give a new folder$"):
        save_recording(recording, written)


def test_a_custom_nets_trace_needs_a_net(recording, tmp_path):
    save_recording(dataclasses.replace(recording, file="b.py, SHA-256 1f"), tmp_path / "trace")
    with pytest.raises(cli.UsageError, match=r"^--net: the trace is of b\.py, .*give --net FILE"):
        main(["replay", str(tmp_path / "trace")])


def test_flipped_bits_cuts_and_missing_files_are_noticed(written, tmp_path, raises_line):
    rng = np.random.default_rng(0)

    def flipped(whole):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        return damaged

    folder = tmp_path / "copy"
    for path in sorted(written.iterdir()):
        whole = path.read_bytes()
        for damaged in [*(flipped(whole) for _ in range(6)), whole[: len(whole) // 2], b""]:
            shutil.copytree(written, folder, dirs_exist_ok=True)
            (folder / path.name).write_bytes(damaged)
            with raises_line(folder / path.name):
                load_recording(folder)
    shutil.copytree(written, folder, dirs_exist_ok=True)
    (folder / "arrays.npz").unlink()
    with raises_line("arrays.npz: the file is missing; copy the whole folder"):
        load_recording(folder)


def rewritten(written, folder, change):
    """A manifest written by hand, with its right hash."""
    shutil.copytree(written, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    recording = manifest["recording"]["Trace"]
    fields = {
        "plan": recording["plan"]["Plan"],
        "trace": recording["run"]["Run"],
        "manifest": manifest,
    }
    change(recording | fields)
    manifest["sha256"] = hash_of_manifest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["manifest"].update(version=3), "version 3, but this package reads 4"),
        (lambda m: m["manifest"].update(format="x"), "damaged, or is no trace (it is no trace)"),
        (lambda m: m["trace"].pop("start"), "this version cannot read the trace"),
        (
            lambda m: m["initial"].update(file={"array": 10**9}),
            "this version cannot read the trace",
        ),
        (lambda m: m["initial"].update(file={"object": 1}), "this version cannot read the trace"),
        (
            lambda m: m["plan"]["loss"]["LossPlan"].update(modell="x"),
            "this version cannot read the trace",
        ),
        (lambda m: m["plan"].update(accumulate=7), "accumulate: 7 does not divide batch size 2"),
    ],
)
def test_a_manifest_that_does_not_fit_is_rejected(written, tmp_path, raises_line, change, message):
    rewritten(written, tmp_path / "copy", change)
    with raises_line(message):
        load_recording(tmp_path / "copy")


def test_environments_are_shown_when_the_verdict_differs(tmp_path, capsys):
    def write(name, loss, **environment):
        def change(recording):
            recording["environment"].clear()
            recording["environment"].update(environment)
            recording["trace"]["losses"][:] = [loss] * 5

        rewritten(TRACE, tmp_path / name, change)

    write("a", 1.0, torch="2.13.0", kernels="AVX2", threads="2")
    write("b", 1.0, mindspore="2.10.0", threads="1", ONEDNN_MAX_CPU_ISA="AVX2")
    write("c", 2.0, threads="1", Python="3")
    isa = "ONEDNN_MAX_CPU_ISA: AVX2 in the port, not set in the reference"
    for ours, theirs, code, words in (
        ("a", "c", 1, "\nenvironment:\n  threads: 2 in the port, 1 in the reference\n5 updates"),
        ("b", "c", 1, f"\nenvironment:\n  {isa}\n5 updates"),
        ("a", "b", 0, "there are no probes\n5 updates"),
    ):
        assert main(["compare", str(tmp_path / ours), str(tmp_path / theirs)]) == code
        assert words in capsys.readouterr().out


def test_traces_of_different_tasks_are_rejected(tmp_path, raises_line):
    def smooth_more(recording):
        recording["plan"]["loss"]["LossPlan"]["smoothing"] = 0.2

    rewritten(TRACE, tmp_path / "b", smooth_more)
    fix = "record one trace again with --like TRACE"
    with raises_line("compare: ", "loss.smoothing 0.1 and 0.2", fix):
        main(["compare", str(TRACE), str(tmp_path / "b")])


def test_zero_and_what_it_means_are_one_task(tmp_path):
    """Earlier versions stored an optimizer's own beta2, for which a recipe has 0 now."""
    for name, beta2 in (("a", 0.0), ("b", 0.99)):

        def with_lion(recording, beta2=beta2):
            optimizer = recording["plan"]["optimizer"]["OptimizerPlan"]
            optimizer["name"] = "lion"
            optimizer["settings"]["beta2"] = beta2

        rewritten(TRACE, tmp_path / name, with_lion)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0


def with_file(written, folder, save):
    """The trace with other arrays, which `save` writes, and their right hash."""

    def change(recording):
        save(folder / "arrays.npz")
        content = (folder / "arrays.npz").read_bytes()
        recording["manifest"]["arrays"] = hashlib.sha256(content).hexdigest()

    rewritten(written, folder, change)
    return folder


def compress(file):
    np.savez_compressed(file, **{"0": np.zeros(10**6, np.float32)})


def claim_more(file):
    """An array of four numbers whose header has another count."""
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (10**11,)}
    np.lib.format.write_array_header_1_0(header, fields)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0.npy", header.getvalue() + bytes(16))


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (compress, "the arrays are compressed"),
        (claim_more, "array [100000000000] is larger than the stored"),
    ],
)
def test_arrays_larger_than_their_file_are_rejected(written, tmp_path, raises_line, save, words):
    folder = with_file(written, tmp_path / "copy", save)
    with raises_line(f"arrays.npz: {words}"):
        load_recording(folder)


def test_a_terminal_is_not_controlled_by_names(written, tmp_path):
    rewritten(written, tmp_path / "copy", lambda m: m["notes"].append("a\x1b[2Jb\x9b\n"))
    loaded = load_recording(tmp_path / "copy")
    assert loaded.notes[-1] == "a\\x1b[2Jb\\x9b\\n"


def test_nothing_in_a_trace_is_executed(written, tmp_path):
    class Harm:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'harmed')!r}, 'w')",))

    def save(file):
        np.savez(file, **{"0": np.array([Harm()], dtype=object)})

    with_file(written, tmp_path / "copy", save)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        load_recording(tmp_path / "copy")
    assert not (tmp_path / "harmed").exists()
