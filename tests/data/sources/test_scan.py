import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files, examine, scan_files, write_scan
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
    write_scan(folder, dataset.scans)
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


def test_a_known_good_file_is_not_read_again_and_a_changed_one_is(folder, tmp_path):
    split = load_dataset(RECIPE, str(folder)).train
    first = scan_files(split, None, Workers(), progress=False)
    scans = check_files(load_dataset(RECIPE, str(folder)), "error").scans
    write_scan(tmp_path, scans)
    path = split.path(5)
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"garbage!" * 20)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    # Same size and time: the cache is believed, which shows that nothing was read.
    assert (scan_files(split, first, Workers(), progress=False).codes == 0).all()
    check_files(load_dataset(RECIPE, str(folder)), "error", [tmp_path])
    os.utime(path)
    with pytest.raises(ValueError, match=r"1 of 21 training files are bad: '.*05 ü.JPEG' is not an image; fix"):
        check_files(load_dataset(RECIPE, str(folder)), "error", [tmp_path])


def test_a_scan_of_an_earlier_version_is_made_again(folder, tmp_path):
    """It knew nothing of EXIF orientation."""
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error")
    write_scan(tmp_path, dataset.scans)
    with np.load(tmp_path / "scan-train.npz") as arrays:
        old = {name: array for name, array in arrays.items() if name != "version"}
    old["codes"] = old["codes"] + 4  # what it found does not count
    np.savez(tmp_path / "scan-train.npz", **old)
    assert len(check_files(load_dataset(RECIPE, str(folder)), "error", [tmp_path]).train) == 21


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
def test_whatever_is_wrong_with_the_cache_its_files_are_looked_at_again(folder, tmp_path):
    """Cut anywhere, or with any bit flipped: what is read back is nothing, or what was written."""
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error")
    write_scan(tmp_path, dataset.scans)
    cache = tmp_path / "scan-train.npz"
    whole = cache.read_bytes()
    rng = np.random.default_rng(0)
    flips = rng.integers(len(whole) * 8, size=600)
    damaged = [whole[:end] for end in range(0, len(whole), 3)]
    for bit in flips:
        damaged.append(bytes(byte ^ (1 << bit % 8) * (place == bit // 8) for place, byte in enumerate(whole)))
    for data in damaged:
        cache.write_bytes(data)
        again = check_files(load_dataset(RECIPE, str(folder)), "error", [tmp_path]).scans["train"][1]
        assert all(
            np.array_equal(getattr(again, name), values) for name, values in vars(dataset.scans["train"][1]).items()
        )
