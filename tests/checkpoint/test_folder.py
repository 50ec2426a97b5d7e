"""A checkpoint folder is complete or absent, and reading it notices every change."""

import builtins
import errno
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import CheckpointError, load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder

STATE = {"update": 7, "epoch": 1, "best": None, "last": None}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "layer1.0.conv1.weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "scaler.scale": np.float32(65536).reshape(()),
        "half": rng.normal(size=5).astype(np.float16),
        "empty": np.zeros((0, 3), np.float32),
        "counts": np.arange(4, dtype=np.int32),
    }


def write(update=7, seed=0, folder=Path()):
    state = {**STATE, "update": update}
    return write_checkpoint(folder / f"step-{update:08d}", arrays(seed), arrays(seed + 1), state)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poisoned_state_is_never_saved(raises_line, poison):
    write(1)
    poisoned = arrays()
    poisoned["layer1.0.conv1.weight"][1, 2, 0, 0] = poison
    fault = "was not saved, because layer1.0.conv1.weight contains NaN or infinity"
    for weights, training in ((poisoned, arrays()), (arrays(), poisoned)):
        with raises_line(fault, kind=CheckpointError):
            write_checkpoint(Path("step-00000002"), weights, training, STATE)
    assert os.listdir() == ["step-00000001"]


def test_values_whose_sum_overflows_are_saved():
    wide = {"a": np.full(9, 3e38, np.float32), "b": np.full(9, 60000, np.float16)}
    folder = write_checkpoint(Path("step-00000001"), wide, {}, STATE)
    assert np.array_equal(load_checkpoint(folder).weights["a"], wide["a"])


def test_a_save_that_fails_leaves_what_was_there():
    write(1, seed=3)
    with pytest.raises(TypeError):
        write_checkpoint(Path("step-00000001"), arrays(), arrays(), {"update": object()})
    assert np.array_equal(load_checkpoint(Path("step-00000001")).weights["half"], arrays(3)["half"])
    assert len(os.listdir()) == 1


def test_a_newer_format_is_rejected_without_a_fallback(capsys, raises_line, seal):
    run = RunFolder(Path())
    run.checkpoints.mkdir()
    for update in (1, 2):
        folder = write(update, folder=run.checkpoints)
        seal(folder, format=1, files={})
    fault = f"{folder} has format 1, but this version reads format 2; "
    with raises_line(fault, "start a new run"):
        run.newest()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("entries", "damaged"),
    [
        ({}, "manifest.json is damaged (not a manifest)"),
        ({"files": {}}, "weights.safetensors is damaged"),
        ({"files": []}, "weights.safetensors is damaged"),
    ],
)
def test_a_manifest_without_its_keys_is_damaged(entries, damaged, seal, raises_line):
    folder = write()
    seal(folder, format=2, **entries)
    with raises_line(damaged, "; use another", kind=CheckpointError):
        load_checkpoint(folder)


def make_folder(path):
    path.mkdir(parents=True)
    (path / "thesis.txt").write_text("years of work")


def make_site(path):
    make_folder(path)
    (path / "manifest.json").write_text('{"name": "web app", "files": {}}')


def make_link(path):
    make_site(path.parent / "target")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [make_folder, make_site, make_link, Path.touch])
def test_only_checkpoints_are_replaced(raises_line, make):
    path = Path("precious")
    make(path)
    before = sorted(Path().rglob("*"))
    with raises_line(f"folder: {path} exists", "is not replaced; give another", kind=ValueError):
        write_checkpoint(path, arrays(), arrays(), STATE)
    assert sorted(Path().rglob("*")) == before


def test_what_lies_beside_a_replaced_checkpoint_stays():
    folder = write_checkpoint(Path("model"), arrays(1), {}, STATE)
    shutil.copytree(folder, Path("model.old"))
    make_folder(Path(f"model.tmp-{os.getpid()}"))
    write_checkpoint(folder, arrays(2), {}, STATE)
    for name, seed in (("model", 2), ("model.old", 1)):
        assert np.array_equal(load_checkpoint(Path(name)).weights["half"], arrays(seed)["half"])
    assert len(os.listdir()) == 3


@pytest.mark.parametrize("dtype", [np.complex64, "bfloat16"])
def test_a_dtype_that_cannot_be_stored_is_named(raises_line, dtype):
    if dtype == "bfloat16":
        mindspore = pytest.importorskip("mindspore")
        dtype = mindspore.Tensor([0.0], mindspore.bfloat16).numpy().dtype
    weights = {"phase": np.zeros(2, dtype)}
    with raises_line("phase: dtype", "use one of float64", kind=CheckpointError):
        write_checkpoint(Path("step-00000001"), weights, {}, STATE)


def test_an_empty_folder_may_become_a_checkpoint():
    (Path("step-00000007")).mkdir()
    assert load_checkpoint(write()).state == STATE


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "state.json"])
def test_an_error_of_the_system_is_no_damage(monkeypatch, capsys, says, number, name):
    """Neither an older checkpoint is used, nor a new run advised."""
    run = RunFolder(Path())
    run.checkpoints.mkdir()
    paths = [str(write(update, folder=run.checkpoints) / name) for update in (1, 2)]
    real = builtins.open

    def refuse(path, *arguments, **keywords):
        if str(path) in paths:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr("io.open", refuse)
    with pytest.raises(OSError, match="cannot be read") as caught:
        run.newest()
    says(caught, paths[1], os.strerror(number), "was not checked", "; remove the cause")
    assert "damaged" not in str(caught.value) + capsys.readouterr().err


def test_too_many_open_files_are_no_damage(no_descriptors):
    folder = write()
    with pytest.raises(OSError, match="Too many open files") as caught, no_descriptors():
        load_checkpoint(folder)
    assert not isinstance(caught.value, CheckpointError)
    load_checkpoint(folder)


@pytest.mark.parametrize("closed", [".", "manifest.json", "weights.safetensors"])
def test_another_users_checkpoint_is_not_damaged(closed, raises_line, another_user):
    folder = write()
    for path in (Path(), folder):
        path.chmod(0o755)
    (folder / closed).chmod(0)
    line = folder, "(Permission denied), so the checkpoint was not"
    with raises_line(*line, kind=OSError), another_user():
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "state.json"])
@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested"])
def test_a_fifo_device_or_huge_file_is_damage(name, kind, raises_line, foreign):
    folder = write()
    foreign(kind, folder / name)
    with raises_line(folder / name, "is damaged (", kind=CheckpointError):
        load_checkpoint(folder)


def test_a_sealed_checkpoint_larger_than_memory_is_named(reseal, raises_line):
    path = write() / "weights.safetensors"
    try:
        os.truncate(path, 10**13)
    except OSError:
        pytest.skip("this file system has no files of 10 TB")
    reseal(path, size=10**13)
    with raises_line(path, "1e+04 GB do not fit into memory; use a machine with more"):
        load_checkpoint(path.parent)


@pytest.mark.parametrize("text", ["[" * 20_000 + "]" * 20_000, "7", "[]", "nothing"])
def test_state_json_that_is_no_object_is_damaged(reseal, text, raises_line):
    path = write() / "state.json"
    path.write_text(text)
    reseal(path, size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    with raises_line(f"{path} is damaged (", kind=CheckpointError):
        load_checkpoint(path.parent)


def test_a_full_disk_names_the_checkpoint(no_room):
    with pytest.raises(OSError, match="File too large") as caught, no_room(100):
        write()
    assert caught.value.filename == "step-00000007"
    assert not os.listdir()
