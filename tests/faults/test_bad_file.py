"""An image file that cannot be decoded is met in training: the run ends with a checkpoint, and goes on from it."""

import dataclasses
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.run.loop import train

# 21 photographs, 5 updates. An average and momentum would keep what an update that is not applied had left there.
RECIPE = Recipe(dataset="imagefolder", model="resnet8", image_size=16, batch_size=4, epochs=1, flip=True, ema=0.8)
FLAGS = (
    *("--dataset", "imagefolder", "--model", "resnet8", "--image-size", "16", "--batch-size", "4", "--epochs", "1"),
    *("--max-shift", "0", "--max-rotation", "0", "--max-zoom", "0", "--flip", "--ema", "0.8", "--no-check-files"),
)


def file_of(folder, update):
    """The last training file of an update: of two workers, rank 1's."""
    dataset = load_dataset(RECIPE, str(folder))
    return Path(dataset.train.path(make_feed(dataset, RECIPE).indices(update)[-1]))


@pytest.mark.usefixtures("device")
def test_a_run_ends_at_a_bad_file_and_goes_on_when_it_is_repaired(folder, launcher):
    """In micro-batches. Without a single update there is nothing to save; a file of another size is other data."""
    options = RunOptions(data_dir=str(folder), out_dir="run", accumulate=2, check_files="no", progress=False)
    for update, left in ((0, []), (3, [3])):
        path = file_of(folder, update)
        good = path.read_bytes()
        path.write_bytes(good[:99])
        with pytest.raises(BadSampleError) as caught:
            train(RECIPE, options)
        path.write_bytes(good)
        kept = f"the checkpoint after update {update} is saved" if update else "there is no checkpoint yet"
        for part in (f"update {update + 1}: ", f"{path}: cannot be decoded", "the update was not applied", kept):
            assert part in str(caught.value)
        assert RunFolder(Path("run")).updates() == left
    with pytest.raises(ValueError, match=r"^resume: .*contents.*--allow-other-data"):
        train(RECIPE, options)
    assert train(RECIPE, dataclasses.replace(options, allow_other_data=True)).updates == 5
    assert train(RECIPE, dataclasses.replace(options, out_dir="whole")).updates == 5
    assert launcher.last_state("run") == launcher.last_state("whole")


@pytest.mark.slow
def test_a_bad_file_of_one_worker_ends_both(folder, launcher, python):
    """With one code; rank 0, whose samples were good, says whose were not."""

    def run(out_dir, code):
        command = ["-m", "resnet_fn.launch", "--workers", "2", "--log-dir", f"logs-{out_dir}", "--", *FLAGS]
        python(*command, "--data-dir", folder, "--no-progress", "--out-dir", out_dir, code=code, seconds=300)

    path = file_of(folder, 3)
    good = path.read_bytes()
    path.write_bytes(bytes(len(good)))
    run("run", 1)
    logs = [Path(f"logs-run/worker_{rank}.log").read_text() for rank in range(2)]
    assert f"train: error: update 4: rank 1: {path}: cannot be decoded" in logs[0]
    assert "the checkpoint after update 3 is saved" in logs[0]
    assert not any("Traceback" in log for log in logs)
    assert RunFolder(Path("run")).updates() == [3]
    path.write_bytes(good)
    for out_dir in ("run", "whole"):
        run(out_dir, 0)
    assert launcher.last_state("run") == launcher.last_state("whole")
