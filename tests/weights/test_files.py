"""Weight files of all kinds are read without running their code."""

import itertools
import os
import pickle
import re
import shutil
import stat
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.weights.files import read_arrays, write_arrays
from resnet_fn.weights.load import read_weights

ARRAYS = {
    "conv1.weight": np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1),
    "bn1.gamma": np.ones(2, np.float32),
}


def test_a_file_of_objects_alone_is_rejected(torch, raises_line):
    """That no code of them runs: test_torch_file.py."""
    torch.save({"conv1.weight": Path()}, "a.pth")
    with raises_line("a.pth ", "that could run code (conv1.weight); save net.state_dict()"):
        read_arrays("a.pth")


def test_a_cut_file_is_rejected(ending):
    write_arrays(f"a.{ending}", ARRAYS)
    data = Path(f"a.{ending}").read_bytes()
    Path(f"b.{ending}").write_bytes(data[:-4])
    with pytest.raises(ValueError, match=rf"^b\.{ending} is no intact "):
        read_arrays(f"b.{ending}")


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n",
            "Git LFS .*git lfs pull",
        ),
        (
            "<!DOCTYPE html>\n<title>Nicht gefunden: é</title>\n".encode(),
            "is text.*DOCTYPE html.*download",
        ),
        (b"error: no such file\n", "is text.*error: no such file"),
        (bytes(4096), "empty"),
    ],
)
def test_a_file_that_holds_no_weights_is_named(ending, contents, kind):
    Path(f"a.{ending}").write_bytes(contents)
    with pytest.raises(ValueError, match=rf"^a\.{ending} .*{kind}"):
        read_arrays(f"a.{ending}")


def test_pytorchs_files_are_read_without_pytorch(torch, monkeypatch):
    write_arrays("a.pth", ARRAYS)
    monkeypatch.setitem(sys.modules, "torch", None)
    read = read_arrays("a.pth").arrays
    assert read.keys() == ARRAYS.keys()
    assert all(read[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())
    with pytest.raises(
        ValueError, match=r"writing \.pth files needs torch; run pip install '\.\[torch\]'"
    ):
        write_arrays("b.pth", ARRAYS)


def test_the_bytes_decide_how_a_file_is_read(torch):
    """The endings are those of training scripts, the Hugging Face hub and PyTorch Lightning."""
    write_arrays("a.pth", ARRAYS)
    write_arrays("a.safetensors", ARRAYS)
    names = ("model_best.pth.tar", "pytorch_model.bin", "last.ckpt", "net.th")
    for source, name in itertools.product(("a.pth", "a.safetensors"), names):
        shutil.copy(source, name)
        read = read_arrays(name).arrays["conv1.weight"]
        assert read.tobytes() == ARRAYS["conv1.weight"].tobytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.tar", "is a tar archive; unpack it"),
        ("a.tar.gz", "is compressed by gzip; unpack it"),
        ("a.npz", r"is a zip archive of w.npy; unpack it"),
        ("a.h5", "is an HDF5 file"),
        ("a.pkl", r"is no weight file; give a \.safetensors, .*\.pth\.tar"),
        ("a.pth", "is no intact weight file, or of an unknown kind; copy"),
    ],
)
def test_files_of_other_kinds_are_named(name, words):
    Path("w.txt").write_text("w")
    with tarfile.open("a.tar", "w") as plain, tarfile.open("a.tar.gz", "w:gz") as packed:
        plain.add("w.txt")
        packed.add("w.txt")
    np.savez("a.npz", w=np.ones(3))
    Path("a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    for file in ("a.pkl", "a.pth"):
        Path(file).write_bytes(pickle.dumps({"conv1.weight": [1.0]}))
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} {words}"):
        read_arrays(name)


@pytest.mark.parametrize("endings", [("safetensors", "ckpt"), ("pth",)])
def test_equal_weights_give_equal_files_readable_by_others(endings, python):
    if "pth" in endings:
        pytest.importorskip("torch", reason="writing .pth needs torch")
    arrays = {"fc.weight": np.ones((3, 2), np.float32), "fc.bias": np.zeros(3, np.float32)}
    lines = (
        "import sys, numpy as np; from resnet_fn.weights.files import write_arrays; arrays = "
        "{'fc.weight': np.ones((3, 2), 'float32'), 'fc.bias': np.zeros(3, 'float32')}; "
        "[write_arrays(file, arrays) for file in sys.argv[1:]]"
    )
    python("-c", lines, *(f"other.{ending}" for ending in endings))
    umask = os.umask(0)
    os.umask(umask)
    for ending in endings:
        first = Path(f"a.{ending}")
        write_arrays(first, arrays)
        assert first.read_bytes() == Path(f"other.{ending}").read_bytes()
        assert stat.S_IMODE(first.stat().st_mode) == 0o666 & ~umask


def test_a_place_that_cannot_be_written_is_named(raises_line):
    fault = "nowhere/a.safetensors cannot be written (No such file or directory); give another file"
    with raises_line(fault):
        write_arrays("nowhere/a.safetensors", ARRAYS)


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested"])
@pytest.mark.parametrize("name", ["a.pth", "a.safetensors", "a.ckpt", "a.bin"])
def test_fifos_and_devices_as_weights_are_errors(kind, name, foreign, raises_line):
    foreign(kind, name)
    with raises_line(name, "; "):
        read_arrays(name)


def test_a_huge_file_is_not_read(raises_line):
    write_arrays("a.safetensors", ARRAYS)
    os.truncate("a.safetensors", 60 << 30)
    with raises_line("a.safetensors: its arrays do not fit into memory", "; "):
        read_weights("a.safetensors")
