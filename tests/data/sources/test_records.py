"""Packed records give the pixels of their files."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import BadSampleError, eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.packing import pack as write_shards
from resnet_fn.data.sources.scan import check_files
from resnet_fn.pack import main
from resnet_fn.runtime.workers import Workers

FOLDER = Recipe(
    dataset="imagefolder",
    image_size=24,
    batch_size=4,
    flip=True,
    policy="trivialaugment",
    erasing=0.2,
)
RECORDS = FOLDER.changed(dataset="mindrecord")


@pytest.fixture(scope="module")
def packed_once(ten_each, tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "out"
    assert main([str(ten_each), str(out), "--shards", "4", "--no-progress"]) == 0
    return out


@pytest.fixture
def out(packed_once):
    """out() opens the folder out, where `ten_each` is packed into 4 shards a split."""
    subprocess.run(["cp", "-r", packed_once, "out"], check=True)  # which keeps the holes
    return lambda: load_dataset(RECORDS, "out")


def test_records_give_the_very_bits_of_the_folder(
    folder, pack, same_batches, make_photograph, encode
):
    exif = Image.Exif()
    exif[0x112] = 6
    for half in ("train", "val"):
        (folder / half / "bee/turned.jpg").write_bytes(encode(make_photograph(9), exif=exif))
        (folder / half / "bee/webp.webp").write_bytes(encode(make_photograph(8), "WEBP"))
    files = check_files(load_dataset(FOLDER, str(folder)))
    records = pack(folder)
    assert records.notes == ()
    assert records.classes == files.classes
    assert records.train.labels.tolist() == files.train.labels.tolist()
    same_batches(make_feed(files, FOLDER), make_feed(records, RECORDS), (0, 1, 4, 7, 2))


@pytest.mark.parametrize("fields", [{"repeats": 4}, {"sampling": "balanced"}])
def test_repeated_samples_have_the_folders_bits_too(ten_each, out, same_batches, fields):
    files = check_files(load_dataset(FOLDER, str(ten_each)))
    records = out()
    one = make_feed(files, FOLDER.changed(**fields))
    two = make_feed(records, RECORDS.changed(**fields))
    with ThreadPoolExecutor(1) as thread:  # as a run asks for them
        thread.submit(same_batches, one, two, (0, 1, 2, 6, 4)).result()


def test_a_damaged_packed_image_is_named(ten_each, out, raises_line):
    image = (ten_each / "train/bee/03 ü.JPEG").read_bytes()
    records = out()
    feed = make_feed(records, RECORDS)
    index = records.train.names.index("bee/03 ü.JPEG")
    for file in map(Path, records.train.files):
        file.write_bytes(file.read_bytes().replace(image, bytes(len(image))))
    message = (
        f"data: sample {index} (bee/03 ü.JPEG) of the packed set cannot be decoded; pack the set "
        "again, then resume"
    )
    with raises_line(message, kind=BadSampleError):
        list(map(feed.batch, range(5)))
    feed.close()


def test_vanished_packed_data_have_a_fix(out):
    records = out()
    os.truncate(records.train.files[-1], Path(records.train.files[-1]).stat().st_size // 2)
    named = (
        r"^data: sample (\d+) \(.*JPEG\) or a later one cannot be read \((.*)\); check the "
        r"packed files, then"
    )
    with pytest.raises(BadSampleError, match=named) as cut:
        list(records.train.stream(np.arange(21)))
    number, cause = re.match(named, str(cut.value)).groups()
    assert int(number) <= 16  # the first of the shard that is cut; those before can be read
    assert cause.endswith("Failed to read file.")
    for file in records.test.files:
        Path(file).unlink()
    with pytest.raises(BadSampleError, match=r"cannot be read \(.*does not exist.*\); check the"):
        list(records.test.eval_images([np.arange(4)], records.input))


def test_evaluation_is_the_folders_bit_for_bit(ten_each, pack):
    files = load_dataset(FOLDER, str(ten_each))
    records = pack(ten_each, "out", "--short-side", "16")
    for rank in range(4):
        halves = (
            eval_batches(dataset.test, dataset.input, 4, Workers(rank, 4))
            for dataset in (files, records)
        )
        for ours, theirs in zip(*halves, strict=True):
            np.testing.assert_equal(ours, theirs)
    for dataset in (files, records):  # no images, as of the report of a net without mistakes
        assert list(dataset.test.eval_images([], dataset.input)) == []


def write(name, text):
    return lambda: Path("out", name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (write("index.json", "{"), ("out/index.json", "cannot be read", "pack the set again")),
        (
            write("index.json", '{"format": 1}'),
            ("out/index.json", "format must be 2", "1", "pack the set again"),
        ),
        (
            write("index.json", '{"format": 2, "splits": 3}'),
            ("out/index.json", "pack the set again"),
        ),
        (lambda: os.remove("out/index.json"), ("'out'", "index.json", "python -m resnet_fn.pack")),
        (
            lambda: os.truncate("out/val-00001-of-00004.mindrecord", 100),
            ("out/val-00001-of-00004.mindrecord", "wrong size", "python -m resnet_fn.pack"),
        ),
        (
            lambda: np.save("out/val-labels.npy", np.zeros(8, np.int32)),
            ("out", "val", "8 labels and 9 names", "9 samples", "pack"),
        ),
        (write("val-names.json", "[1]"), ("out", "val-names.json", "not a list of names", "pack")),
        (write("val-names.json", "["), ("out", "names", "val", "pack")),
    ],
)
def test_a_damaged_packing_says_what_to_do(out, raises_line, damage, message):
    damage()
    with raises_line(*message):
        out()


INDEX = {
    "no list of splits": {"splits": {"train": 3, "val": []}},
    "a file elsewhere": {"splits": {"train": [{"name": "../a", "files": {}, "samples": 0}]}},
    "no channels": {"mean": [], "std": []},
    "a divisor of 0": {"std": [0.0, 1.0, 1.0]},
    "no names": {"classes": [1, 2, 3]},
    "no numbers": {"mean": [1, "a", 2]},
}


@pytest.mark.parametrize("change", INDEX)
def test_an_index_of_others_is_an_error(change, out, raises_line):
    index = json.loads(Path("out/index.json").read_text())
    write("index.json", json.dumps({**index, **INDEX[change]}))()
    with raises_line("out/index.json", "pack the set again"):
        out()


def test_a_lack_of_descriptors_is_no_damage(ten_each, out, no_descriptors):
    dataset = load_dataset(FOLDER, str(ten_each))
    for action in (out, lambda: write_shards(dataset, Path("out"), 4)):
        with pytest.raises(OSError, match="Too many open files"), no_descriptors():
            action()


def test_labels_in_a_zip_file_are_an_error(out, raises_line):
    with open("out/train-labels.npy", "wb") as file:
        np.savez(file, np.zeros(8, np.int32))
    with raises_line("out/train-labels.npy: cannot be read", "pack the set again"):
        out()


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested"])
@pytest.mark.parametrize("file", ["index.json", "train-labels.npy", "val-names.json"])
def test_devices_as_packed_files_end_with_an_error(kind, file, foreign, out, raises_line):
    foreign(kind, f"out/{file}")
    with raises_line("out/", "pack the set again"):
        out()
