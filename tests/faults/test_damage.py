"""Truncated and changed checkpoints are noticed; a kill loses none."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import CheckpointError, load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder

DRIVERS = Path(__file__).parent / "drivers"


def make(run, update, size=300):
    rng = np.random.default_rng(update)
    weights = {
        f"layer{i}.weight": rng.normal(size=(size + i,)).astype(np.float32) for i in range(6)
    }
    training = {f"momentum.{name}": array * 0.1 for name, array in weights.items()}
    state = {"update": update, "epoch": 0, "best": {"top1": 0.5, "update": update}, "last": None}
    return write_checkpoint(run.checkpoint_path(update), weights, training, state)


def test_truncation_at_every_boundary_is_noticed(tmp_path):
    """Each file cut at 0, at each tensor's begin and end, at each 512 bytes, and one byte around
    all of these.
    """
    folder = make(RunFolder(tmp_path), 1)
    cuts = 0
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        edges = {0, 8, *range(0, len(whole), 512)}
        if path.suffix == ".safetensors":
            start = 8 + int.from_bytes(whole[:8], "little")
            edges |= {
                start + at
                for entry in json.loads(whole[8:start]).values()
                for at in entry["data_offsets"]
            }
        for cut in sorted(
            {edge + by for edge in edges for by in (-1, 0, 1)} & set(range(len(whole)))
        ):
            path.write_bytes(whole[:cut])
            what = (
                rf"the file has {cut} bytes instead of {len(whole)}"
                if path.suffix == ".safetensors"
                else ""
            )
            with pytest.raises(CheckpointError, match=rf"{path.name} is damaged \({what}"):
                load_checkpoint(folder)
            cuts += 1
        path.write_bytes(whole)
        path.rename(tmp_path / "away")
        with pytest.raises(CheckpointError, match=path.name):
            load_checkpoint(folder)
        (tmp_path / "away").rename(path)
    assert cuts > 150
    load_checkpoint(folder)


def test_200_random_bit_flips_are_noticed(tmp_path):
    folder = make(RunFolder(tmp_path), 1)
    files = [(path, path.read_bytes()) for path in sorted(folder.iterdir())]
    rng = np.random.default_rng(0)
    for number in range(200):
        # evenly over the files: most bytes are in two of them
        path, whole = files[number % len(files)]
        bit = int(rng.integers(len(whole) * 8))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        what = (
            r"the sha256 of (the header|(momentum\.)?layer\d\.weight) is wrong"
            if "tensors" in path.name
            else ""
        )
        with pytest.raises(CheckpointError, match=rf"{path.name} is damaged \({what}"):
            load_checkpoint(folder)
        path.write_bytes(whole)
    load_checkpoint(folder)


@pytest.mark.slow
def test_a_kill_in_a_save_loses_no_checkpoint(python):
    # In memory where it can be: a killed process loses nothing that it handed to the kernel, synced
    # or not.
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        result = json.loads(python(DRIVERS / "kill_every_line.py", folder, seconds=300).stdout)
    for case in result.values():
        assert case["old"] > 50, "killed before the rename"
        assert case["new"] > 20, "killed after it, and while older ones were removed"
        assert case["old"] + case["new"] == case["lines"]
    print(f"{sum(case['lines'] for case in result.values())} deaths, 0 checkpoints lost")
