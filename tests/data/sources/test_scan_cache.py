"""What scans found: shared by all that look at the data, whole or not there."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from resnet_fn.data.sources.scan_cache import UNKNOWN, Scan, ScanCache

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.load import load_dataset, open_dataset
from resnet_fn.data.sources.scan import check_files

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def rows(*sizes):
    count = len(sizes)
    return Scan(np.array(sizes), np.arange(count), np.zeros(count, np.uint8), np.zeros(count, bool))


def known_to(cache, split):
    return (cache.find(cache.keys(split)).codes != UNKNOWN).sum()


def test_it_lies_beside_the_data_and_goes_with_them(folder, tmp_path):
    open_dataset(RECIPE, str(folder))
    assert (folder / ".resnet_fn-scan.npz").is_file()  # no folder: torchvision takes each for a class
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    dataset = load_dataset(RECIPE, str(moved))
    cache = ScanCache.of("", str(moved))
    assert (known_to(cache, dataset.train), known_to(cache, dataset.test)) == (21, 9)


def test_one_folder_serves_several_sets_and_is_found_again_by_the_net(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    for place in (folder, other):
        found = open_dataset(RECIPE, str(place), scan_cache="kept")
        assert found.input.scan_cache == str(tmp_path / "kept")
        assert not (place / ".resnet_fn-scan.npz").exists()
    assert len(list(Path("kept").iterdir())) == 2
    (folder / "val" / "bee" / "00 ü.JPEG").write_bytes(b"")
    with pytest.raises(ValueError, match="1 of 9 evaluation files are bad"):
        open_dataset(RECIPE, trained_on=found.input, data_dir=str(folder), splits=("test",))
    assert not (folder / ".resnet_fn-scan.npz").exists()


def test_files_that_come_or_go_do_not_make_the_others_unknown(folder):
    open_dataset(RECIPE, str(folder))
    cache, split = ScanCache.of("", str(folder)), load_dataset(RECIPE, str(folder)).train
    (folder / "train" / "bee" / "00 ü.JPEG").rename(folder / "train" / "bee" / "new.JPEG")
    changed = load_dataset(RECIPE, str(folder)).train
    assert known_to(cache, changed) == 20
    open_dataset(RECIPE, str(folder))
    assert known_to(cache, changed) == known_to(cache, split) == 21


def test_rows_stay_with_their_files_and_the_newer_one_counts():
    cache = ScanCache.of("kept", "data")
    split = FileSplit("data", ("a", "b", "c"), np.zeros(3, np.int32))
    keys = cache.keys(split)
    assert cache.add(keys[:2], rows(1, 2)) == ""
    assert cache.add(keys[1:], rows(22, 33)) == ""
    found = cache.find(keys[::-1])
    assert found.sizes.tolist() == [33, 22, 1]
    assert (found.codes == 0).all()
    assert len(list(Path("kept").iterdir())) == 1


def test_where_the_data_take_no_files_a_run_keeps_it_and_says_so(folder):
    (folder / ".resnet_fn-scan.npz").mkdir()
    run = Path("run")
    (note,) = open_dataset(RECIPE, str(folder), splits=["train"], runs=[run]).notes
    assert note == (
        f"warning: {folder} takes no files (Is a directory) to keep what the check of 21 files found: other "
        "runs will read all files again; give --scan-cache FOLDER"
    )
    cache = ScanCache.of("", str(folder), [run])
    assert known_to(cache, load_dataset(RECIPE, str(folder)).train) == 21
    assert open_dataset(RECIPE, str(folder), splits=["train"], runs=[run]).notes == ()


def test_what_a_run_had_to_keep_is_known_beside_what_others_keep():
    split = FileSplit("data", ("a", "b", "c"), np.zeros(3, np.int32))
    shared, own = ScanCache.of("kept", "data"), ScanCache.of("", "data", [Path("run")])
    keys = shared.keys(split)
    assert shared.add(keys[:2], rows(1, 2)) == ""
    run = dataclasses.replace(own, places=own.places[1:])
    assert run.add(keys[1:], rows(22, 33)) == ""
    both = dataclasses.replace(own, places=(*shared.places, *run.places))
    assert both.find(keys).sizes.tolist() == [1, 22, 33]


def test_files_are_known_whatever_name_they_are_reached_by(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    open_dataset(RECIPE, str(tmp_path / "link"))
    split = load_dataset(RECIPE, str(folder)).train
    assert known_to(ScanCache.of("", str(folder)), split) == 21
    listed = FileSplit(str(folder), tuple(f"./train/../train/{name}" for name in split.names), split.labels)
    assert known_to(ScanCache.of("", str(folder)), listed) == 21


def test_what_a_killed_writer_left_is_removed_a_day_later(folder):
    old, new = (folder / f".tmp-{number}-0-.resnet_fn-scan.npz" for number in (1, 2))
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    open_dataset(RECIPE, str(folder))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_scan_of_an_earlier_version_is_made_again(folder):
    """The first knew nothing of EXIF orientation."""
    cache = ScanCache.of("", str(folder))
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error", cache)
    with np.load(cache.places[0]) as arrays:
        old = {name: array for name, array in arrays.items() if name != "version"}
    np.savez(cache.places[0], version=2, **old)
    assert known_to(cache, dataset.train) == 0
    check_files(load_dataset(RECIPE, str(folder)), "error", cache)
    assert known_to(cache, dataset.train) == 21


@pytest.mark.slow
def test_whatever_is_wrong_with_it_files_are_looked_at_again(folder):
    """Cut anywhere, or with any bit flipped: what is read back is nothing, or what was written."""
    cache = ScanCache.of("", str(folder))
    split = check_files(load_dataset(RECIPE, str(folder)), "error", cache, splits=["train"]).train
    (path,) = cache.places
    whole, expected = path.read_bytes(), cache.find(cache.keys(split))
    damaged = [whole[:end] for end in range(0, len(whole), 3)]
    for bit in np.random.default_rng(0).integers(len(whole) * 8, size=600):
        damaged.append(bytes(byte ^ (1 << bit % 8) * (place == bit // 8) for place, byte in enumerate(whole)))
    lost = 0
    for data in damaged:
        path.write_bytes(data)
        found = cache.find(cache.keys(split))
        same = all(np.array_equal(ours, theirs) for ours, theirs in zip(*map(columns, (found, expected)), strict=True))
        assert same or (found.codes == UNKNOWN).all()
        lost += not same
    assert lost > len(damaged) / 2


def columns(scan):
    return [getattr(scan, field.name) for field in dataclasses.fields(scan)]
