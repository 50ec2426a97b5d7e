"""What a run prints, from its header to its total time."""

import io
import os
import re
import sys
from pathlib import Path

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.run.console import clock
from resnet_fn.run.loop import train

pytestmark = pytest.mark.usefixtures("device")


def test_a_run_prints_header_progress_and_total_time(capsys):
    recipe = Recipe(
        name="digits", model="resnet8", image_size=8, batch_size=240, epochs=2, max_shift=1
    )
    options = RunOptions(out_dir="run", norms_every=5)
    train(recipe, options)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "net         resnet8, 77,754 parameters",
        "data        digits: 1,437 training and 360 validation images, 10 classes, 8x8",
        "recipe      digits with image_size 8, max_rotation 0.0, max_zoom 0.0, batch_size 240, "
        "epochs 2",
        "updates     10 of 240 images, 5 an epoch; each epoch leaves out 237 images",
    ]
    assert re.fullmatch(r"device      CPU, \d+ threads?, 1 worker", lines[4])
    assert lines[5:7] == ["run folder  run", "compiling…"]
    assert lines[7].endswith(" left")
    assert max(map(len, lines[7:10])) <= 80
    row = r" +{}/2 +\d\.\d{{4}} +\d+\.\d\d% +\d\.\d{{4}} +\d+\.\d\d% +{} +\d+ +0:\d\d +{}"
    assert re.fullmatch(row.format(1, r"0\.131", r"0:\d\d"), lines[8]), lines[8]
    assert re.fullmatch(row.format(2, r"0\.00489", "-"), lines[9]), lines[9]
    assert re.fullmatch(r"total time \d:\d\d", lines[10])
    assert len(lines) == 11
    assert Path("run/recipe.toml").read_text() == recipe_text(recipe, options)

    train(recipe, options)
    again = capsys.readouterr().out.splitlines()
    assert again[:6] == lines[:6]
    assert again[6:] == [
        "resuming after update 10 from run/checkpoints/step-00000010",
        "complete: all 10 updates are done",
    ]


def test_times_have_the_units_that_matter():
    times = [clock(seconds) for seconds in (0, 9.94, 59.6, 185, 3600, 7830)]
    assert times == ["0:00", "0:10", "1:00", "3:05", "1h00", "2h10"]


def test_a_run_from_python_needs_no_utf_8(monkeypatch, folder):
    """The header names folders and classes. The stream lacks a class's letter, and a name that is
    left out is no text.
    """
    for half in ("train", "val"):
        Path(folder, half, "bee").rename(Path(folder, half, "b\u00e9\x1b[31m"))
    Path(folder, "train/cat with a space", os.fsdecode(b"Thumbs\x82.txt")).touch()
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    recipe = Recipe(dataset="imagefolder", model="resnet8", image_size=8, batch_size=8, epochs=1)
    options = RunOptions(data_dir=str(folder), out_dir="run", mode="pynative", progress=False)
    assert train(recipe, options).updates == 2
    text = stream.buffer.getvalue().decode("ascii")
    assert (
        f"data        imagefolder: 21 training images in {folder}/train and 9 validation images in "
        rf"{folder}/val, 3 classes (b\xe9\x1b[31m, cat with a space, \xe9l\xe9phant), 8x8"
    ) in text
    assert r"Thumbs\x82.txt" in text
