"""Weight files: `.safetensors`, `.ckpt` and `.pth`; no code from a file runs, equal weights give equal files."""

import os
import stat
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
    with pytest.raises(ValueError, match=r"a\.pth: holds more than tensors \(code could run"):
        read_arrays("a.pth")
    assert not (in_empty_folder / "ran").exists()


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_a_cut_file_is_rejected(ending):
    if ending == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    write_arrays(f"a.{ending}", ARRAYS)
    data = Path(f"a.{ending}").read_bytes()
    Path(f"b.{ending}").write_bytes(data[:-4])
    with pytest.raises(ValueError, match=rf"^b\.{ending}: is no intact "):
        read_arrays(f"b.{ending}")


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_equal_weights_give_equal_files_that_others_may_read(ending, python):
    """Written by two processes, under two names."""
    if ending == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    code = (
        "import sys, numpy as np; from resnet_fn.weights.files import write_arrays;"
        "write_arrays(sys.argv[1], {'fc.weight': np.ones((3, 2), np.float32), 'fc.bias': np.zeros(3, np.float32)})"
    )
    for name in ("a", "other"):
        python("-c", code, f"{name}.{ending}")
    first, other = Path(f"a.{ending}"), Path(f"other.{ending}")
    assert first.read_bytes() == other.read_bytes()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(first.stat().st_mode) == 0o666 & ~umask


def test_a_place_that_cannot_be_written_is_named():
    message = r"^nowhere/a.safetensors: cannot be written \(No such file or directory\); give another file$"
    with pytest.raises(ValueError, match=message):
        write_arrays("nowhere/a.safetensors", ARRAYS)
    with pytest.raises(ValueError, match=r"^a\.bin: cannot be written; end its name in \.safetensors"):
        write_arrays("a.bin", ARRAYS)
