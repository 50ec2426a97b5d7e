import contextlib
import dataclasses
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from PIL import Image
from resnet_fn.data.sources.scan_cache import Scan, ScanCache

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.load import load_dataset, open_dataset
from resnet_fn.data.sources.scan import check_files, examine, scan_files, write_bad_files
from resnet_fn.runtime.workers import Workers

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)
REASON = {"cut": 4, "empty": 2, "garbage": 3, "huge": 5}


@pytest.fixture
def zoo(folder, make_photograph, encode):
    """The folder with one file of every kind that a user's disk has; returns it and what is good and what is bad."""
    picture = make_photograph(77)
    rotated = Image.Exif()
    rotated[0x112] = 6
    whole = encode(picture, quality=90)
    good = {
        "cmyk.jpg": encode(picture.convert("CMYK")),
        "grey.jpg": encode(picture.convert("L")),
        "rotated.jpg": encode(picture, exif=rotated),
        "png named.jpg": encode(picture, "PNG"),
        "alpha.png": encode(picture.convert("RGBA"), "PNG"),
        "sixteen.png": encode(Image.fromarray((np.arange(30 * 40).reshape(30, 40) * 50).astype(np.uint16)), "PNG"),
        "animated.gif": encode(picture, "GIF"),
        "modern.webp": encode(picture, "WEBP"),
        "dot.jpg": encode(Image.new("RGB", (1, 1), (200, 9, 9))),
        "long.jpg": encode(Image.new("RGB", (20000, 20), (9, 200, 9))),
    }
    bad = {
        "cut header.jpg": (whole[:300], "cut"),
        "cut late.jpg": (whole[: len(whole) * 3 // 4], "cut"),
        "empty.jpg": (b"", "empty"),
        "garbage.jpg": (bytes(range(256)), "garbage"),
        "huge.png": (encode(Image.new("1", (20000, 20000)), "PNG"), "huge"),
    }
    place = folder / "train" / "bee"
    for name, data in good.items():
        (place / name).write_bytes(data)
    for name, (data, _) in bad.items():
        (place / name).write_bytes(data)
    return folder, good, bad


def test_every_kind_is_found_and_named(zoo):
    folder, good, bad = zoo
    place = folder / "train" / "bee"
    for name in good:
        assert examine(str(place / name))[2] == 0, name
    for name, (_, kind) in bad.items():
        assert examine(str(place / name))[2] == REASON[kind], name
    assert examine(str(place / "none.jpg"))[2] == 6
    (place / "unreadable.jpg").mkdir()
    assert examine(str(place / "unreadable.jpg"))[2] == 1


def test_a_jpeg_cut_anywhere_is_found(make_photograph, encode, tmp_path):
    """Cut inside the header it would kill the process, cut later it would train as grey."""
    whole = encode(make_photograph(1), quality=90)
    file = tmp_path / "cut.jpg"
    for end in (*range(2, 700, 7), *range(700, len(whole) - 2, 97), len(whole) - 2):
        file.write_bytes(whole[:end])
        assert examine(str(file))[2] == 4, end


def test_error_names_the_files_before_anything_is_computed(zoo):
    dataset = load_dataset(RECIPE, str(zoo[0]))
    message = (
        r"on_bad_sample: 5 of 36 training files are bad: '.*cut header.jpg' is cut or damaged; '.*cut late.jpg' is cut "
        r"or damaged; '.*empty.jpg' is empty; and 2 more; fix them, or give --on-bad-sample skip"
    )
    with pytest.raises(ValueError, match=message):
        check_files(dataset, "error")


def test_skip_trains_on_the_rest_and_says_how_many(zoo):
    folder, _, bad = zoo
    dataset = check_files(load_dataset(RECIPE, str(folder)), "skip")
    assert len(dataset.train) == 31
    assert dataset.notes[0].startswith("skipping 5 of 36 training files: ")
    assert not {os.path.basename(name) for name in dataset.train.names} & set(bad)
    feed = make_feed(dataset, Recipe(dataset="imagefolder", image_size=24, batch_size=31))
    images, _ = feed.batch(0)
    feed.close()
    assert np.isfinite(images).all()
    write_bad_files(folder, dataset)
    assert len((folder / "bad_files.txt").read_text().splitlines()) == 5


def test_mindspore_decodes_all_good_kinds_to_pils_pixels(zoo):
    from mindspore.dataset import vision

    folder, good, _ = zoo
    dataset = check_files(load_dataset(RECIPE, str(folder)), "skip")
    for index in range(len(dataset.train)):
        name = os.path.basename(dataset.train.names[index])
        if name in good:
            ours = vision.Decode()(np.frombuffer(dataset.train.read_decodable(index), np.uint8))
            assert ours.tobytes() == np.asarray(open_upright(good[name])).tobytes(), name


def test_a_known_good_file_is_not_read_again_and_a_changed_one_is(folder):
    dataset, cache = load_dataset(RECIPE, str(folder)), ScanCache.of("", str(folder))
    check_files(dataset, "error", cache)
    path = dataset.train.path(5)
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"garbage!" * 20)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    # Same size and time: what is kept is believed, which shows that nothing was read.
    scan, read = scan_files(dataset.train, cache.find(cache.keys(dataset.train)), Workers(), progress=False)
    assert (scan.codes == 0).all()
    assert not read
    assert len(check_files(dataset, "error", cache).train) == 21
    os.utime(path)
    with pytest.raises(ValueError, match=r"1 of 21 training files are bad: '.*05 ü.JPEG' is not an image; fix"):
        check_files(dataset, "error", cache)


def test_what_a_check_found_is_kept_although_it_ends_in_an_error(zoo):
    folder = zoo[0]
    dataset, cache = load_dataset(RECIPE, str(folder)), ScanCache.of("", str(folder))
    with pytest.raises(ValueError, match="on_bad_sample: 5 of 36 training files are bad"):
        check_files(dataset, "error", cache)
    codes = cache.find(cache.keys(dataset.train)).codes
    assert sorted(codes.tolist()) == [0] * 31 + [2, 3, 4, 4, 5]


def test_a_scan_holds_a_window_of_files_however_many_there_are(folder):
    """What is held beside the result does not grow with the files: the queue of all of them would."""
    split = load_dataset(RECIPE, str(folder)).train
    peaks = []
    for times in (100, 1000):  # 2,100 files and 21,000, which are known
        many = dataclasses.replace(split, names=split.names * times, labels=np.tile(split.labels, times))
        status = [os.stat(split.path(index)) for index in range(21)]
        known = Scan.of_nothing(len(many))
        known.codes[:] = 0
        known.sizes[:] = np.tile([one.st_size for one in status], times)
        known.times[:] = np.tile([one.st_mtime_ns for one in status], times)
        tracemalloc.start()
        scan, read = scan_files(many, known, Workers(), progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1] - len(many) * 18)  # the result's own bytes
        tracemalloc.stop()
        assert not read
        assert np.array_equal(scan.sizes, known.sizes)
    assert peaks[1] < peaks[0] + 1_000_000


def test_a_check_that_is_off_says_so_and_finds_nothing_before_the_files_are_read(zoo):
    folder = zoo[0]
    for pipeline, fate in (("fast", "trains as grey"), ("exact", "ends the run when it is met")):
        dataset = open_dataset(dataclasses.replace(RECIPE, image_pipeline=pipeline), str(folder), scan_cache="off")
        assert dataset.notes[0] == (
            f"scan_cache off: image files are not checked; one that is cut behind its header {fate}"
        )
    assert (len(dataset.train), dataset.input.scan_cache) == (36, "off")
    assert not (folder / ".resnet_fn-scan.npz").exists()
    with pytest.raises(ValueError, match=r"^scan_cache: 'off' finds no bad files, and on_bad_sample 'skip' needs them"):
        open_dataset(dataclasses.replace(RECIPE, on_bad_sample="skip"), str(folder), scan_cache="off")
    checked = check_files(load_dataset(RECIPE, str(folder)), "skip")
    by_name = {name: index for index, name in enumerate(checked.train.names)}
    for index, path in enumerate(dataset.train.names):
        name = os.path.basename(path)
        if path in by_name:
            assert dataset.train.read_decodable(index) == checked.train.read_decodable(by_name[path]), name
        elif name != "cut late.jpg":
            with pytest.raises(ValueError, match=f"{name}: cannot be decoded; fix it and resume$"):
                dataset.train.read_decodable(index)
    (late,) = (index for index, path in enumerate(dataset.train.names) if path.endswith("cut late.jpg"))
    with pytest.raises(ValueError, match=r"cut late.jpg: cannot be decoded; fix it and resume$"):
        list(dataset.train.eval_images([np.array([late])], dataset.input))


@pytest.mark.slow
def test_the_decoder_really_dies_of_a_cut_header(make_photograph, encode, tmp_path):
    """If this fails, MindSpore has been fixed, and the prescan may become optional."""
    whole = encode(make_photograph(1, 500, 375), quality=90)
    script = tmp_path / "decode.py"
    script.write_text(
        "import sys, numpy as np\nfrom mindspore.dataset import vision\n"
        "vision.Decode()(np.fromfile(sys.argv[1], np.uint8))\n"
    )
    codes = []
    for end in (200, 300, 400):
        file = tmp_path / f"{end}.jpg"
        file.write_bytes(whole[:end])
        codes.append(subprocess.run([sys.executable, script, file], capture_output=True, timeout=120).returncode)
    assert -8 in codes


@pytest.mark.slow
def test_no_cut_of_an_unchecked_file_kills_the_decoder(make_photograph, encode, tmp_path):
    """What is let through is cut behind the header: there MindSpore's decoder raises or decodes, but lives."""
    whole = encode(make_photograph(1, 500, 375), quality=90)
    begin = whole.index(b"\xff\xda") + 14  # of the pixels
    file = tmp_path / "cut.jpg"
    split, through = FileSplit(str(tmp_path), ("cut.jpg",), np.zeros(1, np.int32)), []
    for end in (*range(begin + 50), *range(begin + 50, len(whole), 997)):
        file.write_bytes(whole[:end])
        with contextlib.suppress(ValueError):
            through.append(len(split.read_decodable(0)))
    assert min(through) == begin
    file.write_bytes(whole)
    script = tmp_path / "decode.py"
    script.write_text(
        "import contextlib, sys, numpy as np\nfrom mindspore.dataset import vision\n"
        "data, operations = np.fromfile(sys.argv[1], np.uint8), (vision.RandomCropDecodeResize(32), vision.Decode())\n"
        "for end in map(int, sys.argv[2:]):\n"
        "    for operation in operations:\n"
        "        with contextlib.suppress(RuntimeError): operation(data[:end])\n"
        "print('alive')\n"
    )
    command = [sys.executable, script, file, *map(str, through)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "alive\n", done.stderr
