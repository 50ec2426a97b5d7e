"""A file that becomes bad during a run ends it, and costs no epoch."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.run.loop import train

# 21 photographs, 5 updates. An average and momentum would keep what an update that is not applied
# had left there. Nothing is compiled, which takes a fifth of the time. (A compiled step withholds:
# tests/update/test_step.py.)
RECIPE = Recipe(
    dataset="imagefolder",
    model="resnet8",
    image_size=16,
    batch_size=4,
    epochs=1,
    flip=True,
    ema=0.8,
)
OPTIONS = {"mode": "pynative", "check_files": "no", "progress": False}


def file_of(folder, update):
    """The last training file of an update: of two workers, rank 1's."""
    dataset = load_dataset(RECIPE, str(folder))
    return Path(dataset.train.path(make_feed(dataset, RECIPE).indices(update)[-1]))


@pytest.mark.usefixtures("device")
def test_runs_resume_after_a_bad_file_is_repaired(folder, last_state, raises_line):
    """In micro-batches.

    Without a single update there is nothing to save; a file of another size is other data.
    """
    options = RunOptions(data_dir=str(folder), out_dir="run", accumulate=2, **OPTIONS)
    for update, left in ((0, []), (3, [3])):
        path = file_of(folder, update)
        good = path.read_bytes()
        path.write_bytes(good[:99])
        kept = (
            f"the checkpoint after update {update} is saved"
            if update
            else "there is no checkpoint yet"
        )
        parts = (
            f"update {update + 1}: ",
            f"{path}: cannot be decoded",
            "the update was not applied",
            kept,
        )
        with raises_line(*parts, kind=BadSampleError):
            train(RECIPE, options)
        path.write_bytes(good)
        assert RunFolder(Path("run")).updates() == left
    with pytest.raises(ValueError, match=r"^resume: .*contents.*--allow-other-data"):
        train(RECIPE, options)
    assert train(RECIPE, options.changed(allow_other_data=True)).updates == 5
    assert train(RECIPE, options.changed(out_dir="whole")).updates == 5
    assert last_state("run")[1] == last_state("whole")[1]


@pytest.mark.usefixtures("device")
def test_a_bad_validation_file_costs_no_epoch(folder, events, last_state, raises_line):
    """The first evaluation meets it, and each resumed run again, without an update between; then it
    is repaired.
    """
    options = RunOptions(data_dir=str(folder), out_dir="run", **OPTIONS)
    path = max((folder / "val").rglob("*.JPEG"))
    good = path.read_bytes()
    path.write_bytes(good[:99])
    for _ in range(2):
        parts = (
            "evaluation after update 5: ",
            f"{path}: cannot be decoded",
            "checkpoint after update 5 is saved",
        )
        with raises_line(*parts, kind=BadSampleError):
            train(RECIPE, options)
        assert RunFolder(Path("run")).updates() == [5]
    path.write_bytes(good)
    for name in ("run", "whole"):
        assert train(RECIPE, options.changed(out_dir=name)).last["count"] == 9
    assert last_state("run")[1] == last_state("whole")[1]  # the trained weights, not their average
    assert len(events("run", "train")) == 5


@pytest.fixture
def two_workers(python):
    """two_workers(data_dir, code) trains in "run"; what each worker printed."""

    def run(data_dir, code=0):
        Path("bad.toml").write_text(
            recipe_text(RECIPE, RunOptions(data_dir=str(data_dir), **OPTIONS))
        )
        words = shlex.split("--workers 2 --log-dir logs -- --recipe bad.toml --out-dir run")
        python("-m", "resnet_fn.launch", *words, code=code, seconds=300)
        return [Path(f"logs/worker_{rank}.log").read_text() for rank in range(2)]

    return run


@pytest.mark.slow
@pytest.mark.release
def test_a_bad_file_of_one_worker_ends_both(photographs, two_workers, last_state):
    """With one code, in training and in evaluation, of whose blocks of 64 files rank 1 has the
    second.

    Rank 0, whose samples were good, says whose were not. Names are bytes, of any encoding.
    Repaired, it goes on, to the bits that are one worker's above and two workers' in
    test_launcher.py.
    """
    folder = Path("data").absolute()
    shutil.copytree(photographs, folder)
    for file in [*folder.rglob("*.JPEG")]:
        file.rename(file.with_name(os.fsdecode(os.fsencode(file.name[:3]) + b"\xff.JPEG")))
    trained = file_of(folder, 3)
    scored = max((folder / "val").rglob("*.JPEG"))
    good = {path: path.read_bytes() for path in (trained, scored)}
    for path, content in good.items():
        path.write_bytes(bytes(len(content)))
    for path, update, where in ((trained, 3, "update 4"), (scored, 9, "evaluation after update 9")):
        logs = two_workers(folder, code=1)
        assert f"train: error: {where}: rank 1: {path.parent}/{path.name[:3]}" in logs[0]
        assert "ff.JPEG: cannot be decoded" in logs[0]
        assert f"the checkpoint after update {update} is saved" in logs[0]
        assert not any("Traceback" in log for log in logs)
        assert RunFolder(Path("run")).updates()[-1] == update
        path.write_bytes(good[path])
    two_workers(folder)
    assert last_state("run")[0]["last"]["count"] == 90
