"""Which files of a run are where later: kept, moved, relabelled, renumbered, removed, added."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.contents import fingerprint, read_split, write_split
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.kept import EarlierRun
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.data.sources.scan import write_bad_files

SPLIT = Recipe(dataset="imagefolder", image_size=16, batch_size=4, validation_share=0.25)
RUN = Path("run")
UNREAD = RunOptions(check_files="no", progress=False)


@pytest.fixture
def shoot(make_photograph, encode):
    """shoot(file, seed, width, height) writes a photograph, and the folders above it."""

    def write(file, *numbers):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(encode(make_photograph(*numbers), quality=90))

    return write


@pytest.fixture
def zoo(shoot):
    """zoo/CLASS/K.jpg, 12 each of 3 classes, no two of one size."""
    for label, name in enumerate(("ant", "bee", "cat")):
        for k in range(12):
            shoot(f"zoo/{name}/{k}.jpg", 100 * label + k, 40 + 3 * k, 30 + label)


def begin(dataset):
    """Write which files of a data set train to RUN; returns the data set."""
    RUN.mkdir()
    write_split(RUN, dataset, is_new=True)
    return dataset


@pytest.fixture
def run(zoo):
    """The split of a run on zoo."""
    return begin(open_dataset(SPLIT, "zoo"))


def again(options=RunOptions(), **changes):
    """The zoo as training from the weights of RUN sees it."""
    earlier = EarlierRun(RUN, not changes)
    return open_dataset(SPLIT.changed(**changes), "zoo", options=options, weights_of=earlier)


def scored(dataset, recipe=SPLIT, splits=("test",)):
    """The zoo as `evaluate RUN` sees it."""
    return open_dataset(recipe, run=RUN, trained_on=dataset.input, splits=splits)


def bytes_of(files):
    return {Path(files.path(index)).read_bytes() for index in range(len(files))}


def test_older_splits_are_read_newer_ones_rejected(run, raises_line):
    """validation.json is the list that commits before 0.2.0 wrote; contents.json has a format."""
    listed = json.loads((RUN / "validation.json").read_text())
    assert listed == sorted(run.test.names)
    contents = json.loads((RUN / "contents.json").read_text())
    assert contents["format"] == 1
    assert contents["training"].keys() == set(run.train.names)
    assert contents["validation"].keys() == set(run.test.names)
    (RUN / "contents.json").unlink()
    old = read_split(RUN)
    assert (set(old.validation), old.are_known) == (set(run.test.names), False)
    (RUN / "contents.json").write_text(json.dumps({**contents, "format": 99}))
    with raises_line("run/contents.json: has format 99, but ", " reads 1; "):
        read_split(RUN)


def test_any_file_names_are_stored_old_splits_removed(run):
    names = ("a/\udcff.png", "b/é\n.png")
    files = FileSplit("", names, np.zeros(2, np.int32))
    for dataset, is_new in ((replace(run, test=files), True), (run, False)):  # and a resume
        write_split(RUN, dataset, is_new)
        assert json.loads((RUN / "validation.json").read_text()) == list(names)
    write_split(RUN, replace(run, is_split=False), is_new=True)
    assert not (RUN / "validation.json").exists()


def test_a_fingerprint_sees_the_smallest_change():
    data = bytes(np.random.default_rng(0).integers(0, 256, 100_000, np.uint8))
    contents = [data, data + b"\0", data[:-1], data[::-1], b""]
    for place in (0, 1023, 50_001, 99_999):
        contents.append(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    values = {*map(fingerprint, contents)}
    assert len(values) == len(contents)
    assert max(map(max, values)) < 2**48


@pytest.mark.parametrize("with_contents", [True, False])
def test_a_runs_weights_never_validate_on_trained_pictures(run, with_contents, shoot):
    if not with_contents:  # a run of an older version
        (RUN / "contents.json").unlink()
    trained = bytes_of(run.train)
    validated = bytes_of(run.test)
    same = again()
    assert (same.train.names, same.test.names) == (run.train.names, run.test.names)
    for k in range(20):
        shoot(f"zoo/bee/new-{k}.jpg", 900 + k)
    for k in range(8):
        shoot(f"zoo/dog/{k}.jpg", 950 + k)
    more = again()
    assert not bytes_of(more.test) & trained
    assert bytes_of(more.test) >= validated
    counts = np.bincount(more.test.labels)  # of ant, bee, cat and dog
    assert counts[3] == 2
    # A quarter of 32; without contents nobody can say which pictures of the class are new.
    assert counts[1] == (8 if with_contents else 3)


def test_a_moved_or_relabelled_picture_is_recognised(run):
    trained = bytes_of(run.train)
    validated = bytes_of(run.test)
    ants = [Path("zoo", name) for name in run.test.names if name.startswith("ant/")]
    ants[0].rename(ants[0].with_name("renamed.jpg"))
    ants[1].rename(Path("zoo/cat", "relabelled.jpg"))
    Path("zoo/bee").rename("bees")
    Path("zoo/bee").mkdir()
    for k in range(11):  # the first is removed, and the rest are numbered anew
        Path(f"bees/{k + 1}.jpg").rename(f"zoo/bee/{k}.jpg")
    left = {path.read_bytes() for path in Path("zoo").rglob("*.jpg")}
    for dataset in (again(), scored(run)):
        assert bytes_of(dataset.test) & (trained | validated) == validated & left
        relabelled = dataset.test.names.index("cat/relabelled.jpg")
        assert dataset.classes[dataset.test.labels[relabelled]] == "cat"
        assert any("have another path or class now" in line for line in dataset.notes)


def test_removed_and_added_pictures_stop_no_evaluation(run, shoot, raises_line):
    gone, *rest = run.test.names
    Path("zoo", gone).unlink()
    shoot("zoo/ant/new.jpg", 900)
    Path("zoo", run.train.names[0]).rename("zoo/cat/relabelled.jpg")
    dataset = scored(run)
    assert list(dataset.test.names) == rest
    (line,) = dataset.notes
    assert line.startswith(f"warning: 1 of the {len(run.test)} validation images that run/")
    assert line.endswith(f"missing: {gone}")
    for name in rest:
        Path("zoo", name).unlink()
    with raises_line("9 of the 9 images that run/", " put them back"):
        scored(run)


def test_classes_and_groups_that_went_stop_no_evaluation(zoo, shoot):
    grouped = SPLIT.changed(group_by=r"(\d+)\.")
    first = begin(open_dataset(grouped, "zoo"))
    for name in first.train.names:
        if name.startswith("ant/"):
            Path("zoo", name).unlink()
    shutil.rmtree("zoo/cat")
    shoot("zoo/bee/new.jpg", 900)
    scores = scored(first, grouped)
    left = [name for name in first.test.names if not name.startswith("cat/")]
    assert list(scores.test.names) == left
    assert scores.classes == first.classes


def test_a_new_split_warns_of_pictures_already_trained(run):
    other = again(split_seed=5)
    seen = len(bytes_of(other.test) & bytes_of(run.train))
    assert seen > 2
    # Files that were not read are compared by name and size.
    for dataset in (other, again(options=UNREAD, split_seed=5)):
        assert f"run was trained on {seen} of the {len(other.test)}" in "; ".join(dataset.notes)
    (RUN / "contents.json").unlink()
    assert f"run may have been trained on {seen} of the " in "; ".join(again(split_seed=5).notes)
    (RUN / "validation.json").write_text(json.dumps(other.train.names[:9]))
    assert "run may have been trained on 9 of the 9 " in "; ".join(again(split_seed=5).notes)


def test_an_unread_set_keeps_its_pictures_by_name(zoo):
    """Of more than 20,000 files, or with --no-check-files, contents are unknown."""
    first = begin(open_dataset(SPLIT, "zoo", options=UNREAD))
    assert not (RUN / "contents.json").exists()
    assert again(UNREAD).test.names == first.test.names


def test_a_skipped_validation_file_is_not_missing_later(zoo):
    skip = SPLIT.changed(on_bad_sample="skip")
    damaged = open_dataset(skip, "zoo").test.names[0]
    Path("zoo", damaged).write_bytes(b"damaged")
    first = begin(open_dataset(skip, "zoo"))
    write_bad_files(RUN, first)
    names = sorted(first.test.names)
    for listed in (names, [*names, damaged]):  # an older version lists skipped files, too
        (RUN / "validation.json").write_text(json.dumps(listed))
        for splits in (("train", "test"), ("test",)):
            later = scored(first, skip, splits)
            assert later.test.names == first.test.names
            assert not any("missing" in note for note in later.notes)


def test_a_large_foreign_set_is_not_read(run, shoot):
    for k in range(12):
        for name in ("ant", "bee"):
            shoot(f"other/{name}/{k}.jpg", 900 + k, 90 + k, 70)
    shutil.copy(Path("zoo", run.train.names[0]), "other/ant/seen.jpg")
    opened = set()

    def hear(event, args):
        if event == "open" and str(args[0]).startswith("other/"):
            opened.add(Path(args[0]).name)

    sys.addaudithook(hear)
    open_dataset(SPLIT, "other", options=UNREAD, weights_of=EarlierRun(RUN, True))
    assert opened == {"seen.jpg"}


def test_missing_and_new_files_of_val_are_named(folder, shoot):
    recipe = SPLIT.changed(validation_share=0.0)
    first = begin(open_dataset(recipe, str(folder)))
    assert not (RUN / "validation.json").exists()
    (folder / "val/bee/00 ü.JPEG").unlink()
    shoot(folder / "val/bee/new.jpg", 900)
    assert scored(first, recipe).notes == (
        "warning: 1 of the 9 validation images that run used are missing: bee/00 ü.JPEG",
        "1 validation image is new since run: bee/new.jpg",
    )


@pytest.fixture
def empty_split():
    """The files of a split without images."""
    RUN.mkdir()
    (RUN / "contents.json").write_text('{"format": 1, "training": {}, "validation": {}}')
    (RUN / "validation.json").write_text("[]")
    read_split(RUN)


@pytest.mark.parametrize("kind", ["fifo", "nested"])
@pytest.mark.parametrize("file", ["contents.json", "validation.json"])
def test_fifos_and_deep_json_as_splits_are_named(kind, file, foreign, empty_split, raises_line):
    """(More kinds: tests/data/sources/test_lists.py and test_records.py.)"""
    foreign(kind, RUN / file)
    with raises_line(f"run/{file}: is damaged", "restore the file from a copy"):
        read_split(RUN)


def test_a_lack_of_descriptors_is_no_damage(empty_split, no_descriptors):
    with pytest.raises(OSError, match="Too many open files"), no_descriptors():
        read_split(RUN)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("contents.json", "[]"),
        ("contents.json", "{}"),
        ("contents.json", '{"format": 1, "training": {}}'),
        ("contents.json", '{"format": 1, "training": {"a": 1}, "validation": {}}'),
        ("validation.json", "["),
        ("validation.json", "{}"),
        ("validation.json", "[1]"),
    ],
)
def test_json_that_no_run_wrote_is_named(file, text, empty_split, raises_line):
    (RUN / file).write_text(text)
    with raises_line(f"run/{file}: is damaged", "restore the file from a copy"):
        read_split(RUN)
