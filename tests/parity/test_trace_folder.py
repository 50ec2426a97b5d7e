"""A trace comes back as it was written; whatever is wrong with its files is named."""

import dataclasses
import hashlib
import io
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
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.folder import (
    MALFORMED,
    hash_of_manifest,
    load_recording,
    pack,
    save_recording,
    unpack,
)
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import OptimizerPlan, Plan
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.recipes import recipe

TRACE = Path(__file__).parents[1] / "acceptance" / "trace"


@pytest.fixture(scope="module")
def recording():
    """Every field is filled, with names that are awkward in files."""
    rng = np.random.default_rng(0)
    names = ("file", "../a/b", "Ω.weight")

    def arrays(*names):
        return {name: rng.normal(size=(2, 3)).astype(np.float32) for name in names}

    def fields(*fields):
        return {field: arrays(*names) for field in fields}

    ids = np.arange(4, dtype=np.int64).reshape(2, 2)
    batches = [({"ids": ids, "mask": (ids > 1, ids.astype(np.float32))}, np.ones(2, np.int32))] * 2
    use = dataclasses.replace(recipe("digits"), milestones=())
    settings = {"kernel_size": (3, 3), "eps": 1e-5, "bias": True, "pads": None, "max_norm": np.inf}
    weight = ("weight", (2, 3))
    two = ids[0], rng.normal(size=3)
    conv = Layer("conv", 0, "conv", "Conv2d", settings, *two, (weight,), True, 0.5, 0.25)
    lstm = Layer("lstm", 1, "lstm", "LSTM", {}, None, None, (), False, np.inf, np.inf)
    run = Run(
        arrays("logits", "logits 1"),
        arrays(*names),
        [0.1, 0.2],
        after=[arrays(*names), arrays(*names)],
        train_outputs=[arrays("logits"), arrays("logits")],
        losses=[-np.inf, np.nan],
        norms=[1.0, np.inf],
        parts=[arrays(*names), arrays(*names)],
        **fields("gradients", "clipped", "average"),
    )
    run.dropped = [Run(arrays("logits"), run.start, [], **fields("gradients", "clipped"))]
    return Trace(
        "PyTorch 9.9",
        plan_of(use, batches, accumulate=2, seed=3, custom_loss=True),
        arrays(*names),
        {"eval": [conv, lstm], "train": [conv]},
        run,
        {"loss": {"loss": 1e-7}},
        kernels={"loss": {"loss": 2e-7}},
        unread=["output 1"],
        flipped={1e-6: ({"loss": {"loss": 1e-7}}, 3), np.inf: ({"loss": {"loss": np.inf}}, 9)},
        tied=[("a", "b")],
        notes=["dropout is off"],
        environment={"threads": "2"},
        drops=[Drop("a", 0.1, True, 1.25, (4, 1))],
        file="net.py, SHA-256 0a",
        builds=[arrays(*names), arrays(*names)],
        optimizer_alone={1: arrays(*names), 100: arrays("file")},
        losses_alone={ArrayId(samples=1, factor=10): 0.5},
        optimizer_settings={"eps": {"file": 1e-8}},
    )


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


def test_a_trace_has_only_data_in_its_fields():
    """Numbers, strings, arrays, and containers and records of these: nothing that can be called."""
    plain = {int, float, str, bool, type(None), np.ndarray, Any, ...}
    containers = {list, tuple, dict, Sequence, Mapping, types.UnionType, typing.Union}
    seen: set[Any] = set()

    def walk(kind):
        if kind in seen:
            return
        seen.add(kind)
        if dataclasses.is_dataclass(kind):
            parts = typing.get_type_hints(kind).values()
        else:
            assert kind in plain or typing.get_origin(kind) in containers, kind
            parts = typing.get_args(kind)
        for part in parts:
            walk(part)

    walk(Trace)
    assert {Run, Layer, Drop, Plan} <= seen


def test_layers_may_be_left_out(recording, tmp_path):
    assert save_recording(recording, tmp_path / "small", layers="none") < save_recording(
        recording, tmp_path / "whole"
    )
    layers = load_recording(tmp_path / "small").layers["eval"]
    assert [(layer.name, layer.output) for layer in layers] == [("conv", None), ("lstm", None)]
    assert layers[0].settings["kernel_size"] == (3, 3)


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
