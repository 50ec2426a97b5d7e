"""Bad files are found before training, and skipped or named."""

import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.sources import scan
from resnet_fn.data.sources.load import load_dataset, open_dataset
from resnet_fn.data.sources.scan import examine, scan_files, write_bad_files
from resnet_fn.runtime.workers import Workers

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)
SKIP = RECIPE.changed(on_bad_sample="skip")


def opened(folder, recipe=RECIPE, check="auto", **more):
    return open_dataset(recipe, str(folder), options=RunOptions(check_files=check), **more)


@pytest.fixture
def run():
    Path("run").mkdir()
    return Path("run")


@pytest.fixture
def zoo(folder, make_photograph, encode):
    """The folder with a file of each kind, and each file's bytes and fault, by name. (More good
    ones: tests/data/test_preprocess.py.)
    """
    picture = make_photograph(77)
    whole = encode(picture, quality=90)
    good = {
        "png named.jpg": encode(picture, "PNG"),
        "animated.gif": encode(picture, "GIF"),
        "dot.jpg": encode(Image.new("RGB", (1, 1), (200, 9, 9))),
        "long.jpg": encode(Image.new("RGB", (20000, 20), (9, 200, 9))),
    }
    bad = {
        "cut header.jpg": (whole[:300], "cut or damaged"),
        "cut late.jpg": (whole[: len(whole) * 3 // 4], "cut or damaged"),
        "empty.jpg": (b"", "empty"),
        "garbage.jpg": (bytes(range(256)), "not an image"),
        "huge.png": (
            encode(Image.new("1", (20000, 20000)), "PNG"),
            "larger than 178,956,970 pixels",
        ),
    }
    place = folder / "train/bee"
    files = {**{name: (data, "") for name, data in good.items()}, **bad}
    for name, (data, _) in files.items():
        (place / name).write_bytes(data)
    return folder, files


def test_every_kind_of_bad_file_is_named(zoo):
    folder, files = zoo
    place = folder / "train/bee"
    for name, (data, reason) in files.items():
        assert examine(str(place / name))[:2] == (len(data), reason), name
        assert examine(str(place / name), decode=False)[1] == ("empty" if reason == "empty" else "")
    for decode in (True, False):
        assert examine(str(place / "none.jpg"), decode)[:2] == (0, "missing")


def test_a_jpeg_cut_anywhere_is_found(make_photograph, encode):
    whole = encode(make_photograph(1), quality=90)
    for end in (*range(2, 700, 7), *range(700, len(whole) - 2, 97), len(whole) - 2):
        Path("cut.jpg").write_bytes(whole[:end])
        assert examine("cut.jpg")[1] == "cut or damaged", end


def test_bad_files_of_all_splits_are_one_error(zoo, raises_line):
    folder = zoo[0]
    (folder / "val/bee/00 ü.JPEG").write_bytes(b"")
    for check in ("auto", "no"):  # sizes alone show empty files
        with raises_line("1 of 9 validation files are bad: '", "00 ü.JPEG' is empty"):
            opened(folder, check=check, splits=("test",))
    with raises_line(
        "on_bad_sample: 5 of 30 training and 1 of 9 validation files are bad",
        "cut header.jpg' is cut or damaged; ",
        "cut late.jpg' is cut ",
        "empty.jpg' is empty and 3 more; fix them, or give --on-bad-sample skip",
    ):
        opened(folder)


def test_fifos_and_devices_are_named_never_opened(folder, raises_line):
    """In both splits, checked or not; a FIFO that replaces a good file later ends the run, too."""
    os.mkfifo(folder / "train/bee/a.jpg")
    (folder / "val/bee/b.jpg").symlink_to("/dev/zero")  # reading either would never end
    for check in ("yes", "no"):
        with raises_line(
            "1 of 22 training and 1 of 10 ", "a.jpg' is not a regular file", "b.jpg' is"
        ):
            opened(folder, check=check)
    split = load_dataset(RECIPE, str(folder)).train
    with raises_line(
        "a.jpg: cannot be read (not a regular file); fix the file", kind=BadSampleError
    ):
        split.read(split.names.index("bee/a.jpg"))
    assert len(opened(folder, SKIP).train) == 21


def test_a_resumed_run_leaves_out_the_same_files(zoo, run):
    """Also if a file was repaired and the data have moved; nothing is decoded again."""
    folder, _ = zoo
    (folder / "train/bee/a\nb\r.jpg").write_bytes(b"no image")
    first = opened(folder, SKIP)
    write_bad_files(run, first)
    lines = (run / "bad_files.txt").read_text().split("\n")
    assert lines[:2] == [
        "train/bee/a\\nb\\r.jpg\tnot an image",
        "train/bee/cut header.jpg\tcut or damaged",
    ]
    (folder / "train/bee/empty.jpg").write_bytes((folder / "train/bee/dot.jpg").read_bytes())
    moved = folder.rename("elsewhere")
    again = opened(moved, SKIP, run=run)
    assert (again.train.names, again.bad_files) == (first.train.names, first.bad_files)
    assert again.train.sizes.tolist() == first.train.sizes.tolist()
    assert again.notes[0] == "leaving out 6 files that the run's bad_files.txt lists"
    assert len(opened(moved, SKIP).train) == 26


def test_resume_does_not_decode_good_files_again(folder, run, raises_line):
    first = opened(folder, SKIP)
    write_bad_files(run, first)
    file = folder / "train/bee/00 ü.JPEG"
    file.write_bytes(bytes(file.stat().st_size))  # only decoding would notice
    again = opened(folder, SKIP, run=run)
    assert (again.train.names, again.bad_files, again.notes) == (first.train.names, (), ())
    file.unlink()
    file.symlink_to("nowhere")
    bad = "00 ü.JPEG' is missing; they became bad after the run began, so restore them"
    with raises_line("1 of 21 training files are bad: '", bad, "what bad_files.txt lists"):
        opened(folder, SKIP, run=run)


def test_files_are_decoded_where_few_or_asked_for(zoo, monkeypatch, raises_line):
    folder, _ = zoo
    (folder / "train/bee/empty.jpg").unlink()
    unchecked = opened(folder, check="no")
    assert unchecked.notes == (
        "image files are not checked (--no-check-files), so the command stops at a bad file; give "
        "--check-files to decode all files first",
    )
    assert len(unchecked.train) == len(unchecked.train.sizes) == 29
    for bad in ("cut header.jpg", "cut late.jpg", "garbage.jpg"):
        index = unchecked.train.names.index(f"bee/{bad}")
        with raises_line(f"{bad}: cannot be decoded; fix the file and go on", kind=BadSampleError):
            list(unchecked.train.eval_images([np.array([index])], unchecked.input))
    with raises_line("check_files: 'no' cannot be used with on_bad_sample 'skip'; "):
        opened(folder, SKIP, "no")
    monkeypatch.setattr(scan, "MOST_CHECKED", 37)  # of 38, both splits together
    note = opened(folder).notes[0]
    assert note.startswith("image files are not checked (38 are more than 37)")
    with raises_line("4 of 29 training files are bad"):
        opened(folder, check="yes")
    assert len(opened(folder, SKIP).train) == 25
    monkeypatch.setattr(scan, "MOST_CHECKED", 38)
    with raises_line("4 of 29 training files are bad"):
        opened(folder)


def test_without_descriptors_no_file_is_left_out(folder, no_descriptors, raises_line):
    """Nor is one called bad where bad files are an error, or while a batch is read."""
    split = opened(folder, SKIP).train  # all imports are done
    parts = ("Too many open files", "not the fault of this file", "ulimit -n", ".JPEG")
    for action in (
        lambda: scan_files(split, True, Workers(), progress=False),
        lambda: scan_files(split, True, Workers(), progress=True),
        lambda: split.read(0),
    ):
        with raises_line(*parts, kind=OSError), no_descriptors():
            action()


SHORT_OF_MEMORY = """
import resource, sys
from resnet_fn.data.image_file import image_formats
from resnet_fn.data.sources.scan import examine
from PIL import JpegImagePlugin, PngImagePlugin, WebPImagePlugin
image_formats()
pages = int(open("/proc/self/statm").read().split()[0])
for megabytes in map(float, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + int(megabytes * 2**20), -1))
    try:
        print(examine(sys.argv[1]).fault or "good")
    except MemoryError:
        print("no memory")
"""


@pytest.mark.parametrize(("ending", "options"), [("jpg", {"progressive": True}), ("webp", {})])
def test_without_memory_no_good_file_is_called_damaged(ending, options, python):
    """Pillow's decoders report it as "broken data stream", or cannot make a decoder."""
    noise = np.random.default_rng(0).integers(0, 256, (150, 200, 3), np.uint8)
    Image.fromarray(noise).resize((3000, 2250)).save(f"a.{ending}", **options)
    lines = python("-c", SHORT_OF_MEMORY, f"a.{ending}", 1, 4, 16, 2000).stdout.splitlines()
    assert lines[-1] == "good"
    assert {*lines[:-1]} <= {"no memory", "good"}
    assert lines[0] == "no memory"


def test_a_scan_holds_few_files_in_memory(folder):
    """What is held beside the result does not grow with the files: the queue of all of them
    would.
    """
    split = load_dataset(RECIPE, str(folder)).train
    peaks = []
    for times in (100, 1000):  # 2,100 files and 21,000
        many = replace(split, names=tuple(split.names) * times, labels=np.tile(split.labels, times))
        tracemalloc.start()
        scanned, _ = scan_files(many, False, Workers(), progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1] - len(many) * 8)  # the result's own bytes
        tracemalloc.stop()
        assert scanned.sizes[-1] == os.stat(split.path(20)).st_size
    assert peaks[1] < peaks[0] + 1_000_000


def test_a_file_that_changed_is_noticed(folder, raises_line):
    checked = opened(folder).train
    path = folder / "train/bee/03 ü.JPEG"
    assert checked.path(3) == str(path)
    data = path.read_bytes()
    assert checked.read(3) == data
    path.write_bytes(data + b"more")
    changed = "bee/03 ü.JPEG: has changed since the command began; start the command again"
    with raises_line(changed, kind=BadSampleError):
        checked.read(3)
    path.unlink()
    unread = ("bee/03 ü.JPEG: cannot be read (No such file ", "); fix the file")
    with raises_line(*unread, kind=BadSampleError):
        checked.read(3)


def test_a_file_of_60_gb_is_no_image(foreign):
    foreign("sparse", "a.jpg")
    assert examine("a.jpg").fault == examine("a.jpg", decode=False).fault
    assert examine("a.jpg").fault.startswith("larger than 1,431,655,760 bytes")
