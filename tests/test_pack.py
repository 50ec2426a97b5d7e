"""The pack command: bad files and odd names."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.pack import main

RECORDS = Recipe(dataset="mindrecord", image_size=24, batch_size=4)


def test_bad_files_are_named_or_left_out(folder):
    (folder / "train" / "bee" / "00 ü.JPEG").write_bytes(b"no image")
    flags = [str(folder), "out", "--shards", "4", "--no-progress"]
    with pytest.raises(ValueError, match="on_bad_sample: 1 of 21 training files are bad"):
        main(flags)
    assert main([*flags, "--on-bad-sample", "skip"]) == 0
    assert len(load_dataset(RECORDS, "out").train) == 20
    assert json.loads(Path("out/index.json").read_text(encoding="utf-8"))["classes"][0] == "bee"


def test_names_that_are_no_utf8_are_packed_and_come_back(folder):
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / odd)
    assert main([str(folder), "out", "--shards", "1", "--no-progress"]) == 0
    dataset = load_dataset(RECORDS, "out")
    assert dataset.classes == load_dataset(replace(RECORDS, dataset="imagefolder"), str(folder)).classes
    assert (dataset.classes[0], dataset.train.names[0]) == (odd, f"{odd}/00 ü.JPEG")
