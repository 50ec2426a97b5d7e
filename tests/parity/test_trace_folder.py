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
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.recipes import recipe

TRACE = Path(__file__).parents[1] / "acceptance" / "trace"


@pytest.fixture(scope="module")
def recording() -> Trace:
    """Every field is filled, with names that are awkward in files."""
    rng = np.random.default_rng(0)

    def arrays(*names: str, dtype: type = np.float32) -> Arrays:
        return {name: rng.normal(size=(2, 3)).astype(dtype) for name in names}

    ids = np.arange(4, dtype=np.int64).reshape(2, 2)
    batches = [({"ids": ids, "mask": (ids > 1, ids.astype(np.float32))}, np.ones(2, np.int32))] * 2
    names = ("file", "../a/b", "Ω.weight")
    settings = {
        "kernel_size": (3, 3),
        "eps": 1e-5,
        "bias": True,
        "pads": None,
        "max_norm": float("inf"),
    }
    layers = [
        Layer(
            "conv",
            0,
            "conv",
            "Conv2d",
            settings,
            ids[0],
            rng.normal(size=3),
            (("weight", (2, 3)),),
            True,
            0.5,
            0.25,
        ),
        Layer("lstm", 1, "lstm", "LSTM", {}, None, None, (), False, float("inf"), float("inf")),
    ]
    trace = Run(
        arrays("logits", "logits 1"),
        arrays(*names),
        [0.1, 0.2],
        after=[arrays(*names), arrays(*names)],
        train_outputs=[arrays("logits"), arrays("logits")],
        losses=[-float("inf"), float("nan")],
        norms=[1.0, float("inf")],
        gradients=arrays(*names),
        clipped=arrays(*names),
        parts=[arrays(*names), arrays(*names)],
        average=arrays(*names),
    )
    update = Run(arrays("logits"), trace.start, [], [arrays(*names)], [arrays("logits")], [0.5])
    trace.dropped = [dataclasses.replace(update, gradients=arrays(*names), clipped=arrays(*names))]
    known = {
        1e-6: ({"loss": {"loss": 1e-7}}, 3),
        float("inf"): ({"loss": {"loss": float("inf")}}, 9),
    }
    return Trace(
        "PyTorch 9.9",
        plan_of(
            dataclasses.replace(recipe("digits"), milestones=()),
            batches,
            accumulate=2,
            seed=3,
            custom_loss=True,
        ),
        arrays(*names),
        {"eval": layers, "train": layers[:1]},
        trace,
        {"loss": {"loss": 1e-7}},
        kernels={"loss": {"loss": 2e-7}},
        unread=["output 1"],
        flipped=known,
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


def same(a, b) -> bool:
    """Whether two values are equal to the bit, arrays and NaN included."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return all(
            same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
        )
    return a == b or repr(a) == repr(b)


def test_everything_comes_back_to_the_bit(recording, written):
    loaded = load_recording(written)
    for field in dataclasses.fields(Trace):
        assert same(getattr(loaded, field.name), getattr(recording, field.name)), field.name


@pytest.mark.parametrize("wrong", [{}, {"beta2": 0.9}, {"beta2": 0.9, "epsilon": "x"}, [0.9]])
def test_an_optimizer_without_its_settings_is_malformed(wrong):
    stored = pack(OptimizerPlan("lamb", 0.9, 0.01, True, {}), {})
    stored["OptimizerPlan"]["settings"] = wrong
    with pytest.raises(MALFORMED):
        unpack(stored, {})


def test_a_trace_has_only_data_in_its_fields():
    """Numbers, strings, arrays, and containers and records of these: nothing that can be called."""
    plain = {int, float, str, bool, type(None), np.ndarray, Any}

    def walk(kind: Any) -> None:
        if dataclasses.is_dataclass(kind):
            if kind not in seen:
                seen.append(kind)
                for one in typing.get_type_hints(kind).values():
                    walk(one)
            return
        origin = typing.get_origin(kind)
        assert kind in plain or origin in containers, kind
        for one in typing.get_args(kind):
            if one is not ...:
                walk(one)

    seen: list[Any] = []
    containers = (list, tuple, dict, Sequence, Mapping, types.UnionType, typing.Union)
    walk(Trace)
    assert {Run, Layer, Drop, Plan} <= {*seen}


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


def test_flipped_bits_cuts_and_missing_files_are_noticed(written, tmp_path):
    rng = np.random.default_rng(0)
    for path in sorted(written.iterdir()):
        whole = path.read_bytes()
        places = rng.integers(0, len(whole), 6)
        flips = [
            whole[:p] + bytes([whole[p] ^ (1 << int(rng.integers(8)))]) + whole[p + 1 :]
            for p in places
        ]
        for damaged in [*flips, whole[: len(whole) // 2], b""]:
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(written, folder)
            (folder / path.name).write_bytes(damaged)
            with pytest.raises(ValueError) as error:
                load_recording(folder)
            assert str(folder / path.name) in str(error.value)
            assert "\n" not in str(error.value)
    folder = shutil.copytree(written, tmp_path / "missing")
    (folder / "arrays.npz").unlink()
    with pytest.raises(ValueError, match=r"arrays.npz: the file is missing; copy the whole folder"):
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
        (
            lambda m: m["plan"]["optimizer"]["OptimizerPlan"].pop("settings"),
            "this version cannot read the trace",
        ),
        (lambda m: m["plan"].update(accumulate=7), "accumulate: 7 does not divide batch size 2"),
    ],
)
def test_a_manifest_that_does_not_fit_is_rejected(written, tmp_path, change, message):
    rewritten(written, tmp_path / "copy", change)
    with pytest.raises(ValueError) as error:
        load_recording(tmp_path / "copy")
    assert message in str(error.value)


def test_environments_are_shown_when_the_verdict_differs(tmp_path, capsys):
    for name, environment, loss in (
        ("a", {"torch": "2.13.0", "kernels": "AVX2", "threads": "2"}, 1.0),
        ("b", {"mindspore": "2.10.0", "threads": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}, 1.0),
        ("c", {"threads": "1", "Python": "3"}, 2.0),
    ):

        def change(recording, environment=environment, loss=loss):
            recording["environment"].clear()
            recording["environment"].update(environment)
            recording["trace"]["losses"][:] = [loss] * 5

        rewritten(TRACE, tmp_path / name, change)
    for ours, theirs, code, words in (
        ("a", "c", 1, "\nenvironment:\n  threads: 2 in the port, 1 in the reference\n5 updates"),
        (
            "b",
            "c",
            1,
            "\nenvironment:\n  ONEDNN_MAX_CPU_ISA: AVX2 in the port, not set in the reference\n5 updates",
        ),
        ("a", "b", 0, "there are no probes\n5 updates"),
    ):
        assert main(["compare", str(tmp_path / ours), str(tmp_path / theirs)]) == code
        assert words in capsys.readouterr().out


def test_traces_of_different_tasks_are_rejected(tmp_path, says):
    for name, smoothing in (("a", 0.1), ("b", 0.2)):
        rewritten(
            TRACE,
            tmp_path / name,
            lambda m, to=smoothing: m["plan"]["loss"]["LossPlan"].update(smoothing=to),
        )
    with pytest.raises(ValueError) as error:
        main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    says(
        error,
        "compare: ",
        "loss.smoothing 0.1 and 0.2",
        "record one trace again with --like TRACE",
    )


def with_file(written, folder, save):
    """The trace with other arrays, which `save` writes, and their right hash."""

    def change(recording):
        save(folder / "arrays.npz")
        recording["manifest"]["arrays"] = hashlib.sha256(
            (folder / "arrays.npz").read_bytes()
        ).hexdigest()

    rewritten(written, folder, change)
    return folder


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (
            lambda file: np.savez_compressed(file, **{"0": np.zeros(10**6, np.float32)}),
            "the arrays are compressed",
        ),
        (lambda file: claims(file, 10**11), "array [100000000000] is larger than the stored"),
    ],
)
def test_arrays_larger_than_their_file_are_rejected(written, tmp_path, save, words):
    with pytest.raises(ValueError) as error:
        load_recording(with_file(written, tmp_path / "copy", save))
    assert f"arrays.npz: {words}" in str(error.value)


def claims(file, count):
    """An array of four numbers whose header has another count."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    )
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0.npy", header.getvalue() + bytes(16))


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
