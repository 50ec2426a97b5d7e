import os
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.weights.files import read_arrays, write_arrays

ARRAYS = {"conv1.weight": np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1), "bn1.gamma": np.ones(2, np.float32)}


def test_a_malicious_pickle_does_not_run(in_empty_folder):
    torch = pytest.importorskip("torch", reason="reading .pth needs torch")

    class Malicious:
        def __reduce__(self):
            return (open, (str(in_empty_folder / "ran"), "w"))

    torch.save({"conv1.weight": Malicious()}, "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth is damaged, or contains objects that could run code"):
        read_arrays("a.pth")
    assert not (in_empty_folder / "ran").exists()


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_a_cut_file_is_rejected(ending):
    if ending == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    write_arrays(f"a.{ending}", ARRAYS)
    data = Path(f"a.{ending}").read_bytes()
    Path(f"b.{ending}").write_bytes(data[:-4])
    with pytest.raises(ValueError, match=rf"^b\.{ending} is no intact "):
        read_arrays(f"b.{ending}")


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n", "Git LFS .*git lfs pull"),
        ("<!DOCTYPE html>\n<title>Nicht gefunden: é</title>\n".encode(), "is text.*DOCTYPE html.*download"),
        (b"error: no such file\n", "is text.*error: no such file"),
        (bytes(4096), "empty"),
    ],
)
def test_what_else_lies_at_a_weight_files_place_is_named(ending, contents, kind):
    Path(f"a.{ending}").write_bytes(contents)
    with pytest.raises(ValueError, match=rf"^a\.{ending} .*{kind}"):
        read_arrays(f"a.{ending}")


def test_a_pytorch_file_that_would_unpack_to_much_more_is_rejected_before():
    pytest.importorskip("torch", reason="writing .pth needs torch")
    write_arrays("a.pth", {"conv1.weight": np.zeros(2**24, np.float32)})
    with zipfile.ZipFile("a.pth") as whole, zipfile.ZipFile("b.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    assert Path("b.pth").stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"^b\.pth is compressed and would unpack to 67,\d\d\d,\d\d\d bytes"):
        read_arrays("b.pth")


@pytest.mark.parametrize(("version", "safe"), [("2.9.1+cu128", False), ("2.10.0", True), ("3.0.0a0+git12", True)])
def test_a_pytorch_whose_loading_may_run_code_is_not_used(version, safe, monkeypatch):
    torch = pytest.importorskip("torch", reason="reading .pth needs torch")
    write_arrays("a.pth", ARRAYS)
    monkeypatch.setattr(torch, "__version__", version)
    if safe:
        assert read_arrays("a.pth").keys() == ARRAYS.keys()
        return
    with pytest.raises(ValueError, match=r"^a\.pth: PyTorch 2\.9\.1.*torch>=2\.10.*safetensors"):
        read_arrays("a.pth")


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_equal_weights_give_equal_files_that_others_may_read(ending, python):
    if ending == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    arrays = {"fc.weight": np.ones((3, 2), np.float32), "fc.bias": np.zeros(3, np.float32)}
    write_arrays(f"a.{ending}", arrays)
    code = "import sys, numpy as np; from resnet_fn.weights.files import write_arrays; float32 = 'float32'; "
    words = "{'fc.weight': np.ones((3, 2), float32), 'fc.bias': np.zeros(3, float32)}"
    python("-c", f"{code}write_arrays(sys.argv[1], {words})", f"other.{ending}")
    first, other = Path(f"a.{ending}"), Path(f"other.{ending}")
    assert first.read_bytes() == other.read_bytes()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(first.stat().st_mode) == 0o666 & ~umask


def test_a_place_that_cannot_be_written_is_named():
    message = r"^nowhere/a.safetensors cannot be written \(No such file or directory\); give another file$"
    with pytest.raises(ValueError, match=message):
        write_arrays("nowhere/a.safetensors", ARRAYS)
