"""Packing a folder into MindRecord shards, also after a kill."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from resnet_fn.config.cli import UsageError
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.packing import shrink
from resnet_fn.pack import main

RECORDS = Recipe(dataset="mindrecord", image_size=24, batch_size=4)


def test_packing_again_writes_missing_or_damaged_shards_alone(folder, pack, capsys, raises_line):
    pack(folder, "out")
    assert len(list(Path("out").glob("*.mindrecord"))) == 8
    os.remove("out/train-00002-of-00004.mindrecord")
    os.truncate("out/val-00001-of-00004.mindrecord", 100)
    damaged = Path("out/train-00000-of-00004.mindrecord")
    *whole, last = damaged.read_bytes()
    damaged.write_bytes(bytes((*whole, last ^ 1)))  # one bit, the same size
    with raises_line("train-00002-of-00004.mindrecord: is missing; run python -m resnet_fn.pack"):
        load_dataset(RECORDS, "out")
    os.remove("out/index.json")
    pack(folder, "out")
    printed = capsys.readouterr().out
    assert "(3 shards written and read back" in printed
    assert "resnet_fn.train --recipe NAME --dataset mindrecord --data-dir out" in printed
    assert damaged.read_bytes()[-1] == last
    with raises_line("out was packed from other files or with other settings; give another folder"):
        pack(folder, "out", "--short-side", "16")
    Path("out/plan.json").write_text("{")
    with raises_line("out/plan.json: cannot be read", "give another folder"):
        pack(folder, "out")


def test_a_killed_packing_is_rejected_then_continued(folder, capsys, wait_until, raises_line):
    (folder / "train/bee/00 ü.JPEG").write_bytes(b"no image")
    words = [str(folder), "out", "--shards", "19", "--no-progress"]
    with raises_line("on_bad_sample: 1 of 21 training files are bad"):
        main(words)
    words += ["--on-bad-sample", "skip"]
    process = subprocess.Popen(
        [sys.executable, "-m", "resnet_fn.pack", *words], stdout=subprocess.DEVNULL
    )
    wait_until(lambda: list(Path().glob("out/train-*.mindrecord.json")))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    with raises_line("'out' must contain index.json, but it contains ", "; pack an image folder "):
        load_dataset(RECORDS, "out")
    # whatever comes of the rest
    assert Path("out/bad_files.txt").read_text().startswith("train/bee/00 ü.JPEG\t")
    assert main(words) == 0
    written = int(re.search(r"\((\d+) shards written", capsys.readouterr().out)[1])
    assert 0 < written < 28
    assert len(load_dataset(RECORDS, "out").train) == 20
    assert not list(Path("out").glob(".*"))


def test_shrinking_keeps_proportions_and_leaves_small_images_alone(make_photograph, encode):
    photograph = make_photograph(0, 500, 375)
    data = encode(photograph, quality=90)
    small = np.asarray(open_upright(shrink(data, 256, 90)), float)
    assert small.shape == (256, 341, 3)
    assert shrink(data, 375, 90) is data
    assert np.abs(small - photograph.resize((341, 256), Image.BICUBIC)).mean() < 4


def test_packing_keeps_names_that_are_not_utf8(folder):
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / odd)
    assert main([str(folder), "out", "--shards", "1", "--no-progress"]) == 0
    dataset = load_dataset(RECORDS, "out")
    source = load_dataset(RECORDS.changed(dataset="imagefolder"), str(folder))
    assert dataset.classes == source.classes
    assert (dataset.classes[0], dataset.train.names[0]) == (odd, f"{odd}/00 ü.JPEG")


def test_packing_splits_a_single_folder_as_training_does(folder, raises_line):
    source = str(folder / "train")
    with raises_line("--validation-share 0.2"):
        main([source, "out", "--no-progress"])
    assert main([source, "out", "--validation-share", "0.3", "--shards", "1", "--no-progress"]) == 0
    packed = load_dataset(RECORDS, "out")
    split = Recipe(dataset="imagefolder", image_size=24, batch_size=4, validation_share=0.3)
    expected = load_dataset(split, source)
    assert (packed.train.names, packed.test.names) == (expected.train.names, expected.test.names)
    with raises_line("validation_share: 1.0", kind=UsageError):
        main([source, "other", "--validation-share", "1"])
