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


@pytest.fixture
def zoo(make_photograph, encode):
    """zoo/CLASS/K.jpg, 12 each of 3 classes, no two of one size; returns the folder."""
    for label, name in enumerate(("ant", "bee", "cat")):
        Path("zoo", name).mkdir(parents=True)
        for k in range(12):
            picture = make_photograph(100 * label + k, 40 + 3 * k, 30 + label)
            Path(f"zoo/{name}/{k}.jpg").write_bytes(encode(picture, quality=90))
    return Path("zoo")


@pytest.fixture
def run(zoo):
    """The split of a run on zoo, which is written to RUN; returns the data set."""
    RUN.mkdir()
    dataset = open_dataset(SPLIT, str(zoo))
    write_split(RUN, dataset, is_new=True)
    return dataset


def again(**changes):
    """The zoo as training from the weights of RUN sees it."""
    earlier = EarlierRun(RUN, not changes)
    return open_dataset(replace(SPLIT, **changes), "zoo", weights_of=earlier)


def scored(dataset, folder="zoo"):
    """The zoo as `evaluate RUN` sees it."""
    return open_dataset(SPLIT, str(folder), run=RUN, trained_on=dataset.input, splits=("test",))


def bytes_of(files):
    return {Path(files.path(index)).read_bytes() for index in range(len(files))}


def test_older_splits_are_read_newer_ones_rejected(run):
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
    with pytest.raises(ValueError, match=r"run/contents.json: has format 99, but .* reads 1; "):
        read_split(RUN)
    (RUN / "validation.json").write_text("[")
    (RUN / "contents.json").unlink()
    with pytest.raises(ValueError, match=r"run/validation.json: is damaged .*; restore"):
        read_split(RUN)


def test_any_file_names_are_stored_old_splits_removed(run):
    names = ("a/\udcff.png", "b/é\n.png")
    files = FileSplit("", names, np.zeros(2, np.int32))
    write_split(RUN, replace(run, test=files), is_new=True)
    assert json.loads((RUN / "validation.json").read_text()) == list(names)
    write_split(RUN, run, is_new=False)  # a resume
    assert json.loads((RUN / "validation.json").read_text()) == list(names)
    write_split(RUN, replace(run, is_split=False), is_new=True)
    assert not (RUN / "validation.json").exists()


def test_a_fingerprint_sees_the_smallest_change(make_photograph, encode):
    data = bytes(np.random.default_rng(0).integers(0, 256, 100_000, np.uint8))
    values = {fingerprint(one) for one in (data, data + b"\0", data[:-1], data[::-1], b"")}
    for place in (0, 1023, 50_001, 99_999):
        values.add(fingerprint(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]))
    assert len(values) == 9
    assert max(max(value) for value in values) < 2**48
    picture = make_photograph(0, 300, 200)
    other = picture.copy()
    other.putpixel((150, 100), (255, 0, 255))
    for kind in ("JPEG", "PNG", "BMP"):
        assert fingerprint(encode(picture, kind)) != fingerprint(encode(other, kind)), kind


@pytest.mark.parametrize("with_contents", [True, False])
def test_a_runs_weights_never_validate_on_trained_pictures(
    run,
    with_contents,
    make_photograph,
    encode,
):
    if not with_contents:  # a run of an older version
        (RUN / "contents.json").unlink()
    trained = bytes_of(run.train)
    validated = bytes_of(run.test)
    same = again()
    assert (same.train.names, same.test.names) == (run.train.names, run.test.names)
    for k in range(20):
        Path(f"zoo/bee/new-{k}.jpg").write_bytes(encode(make_photograph(900 + k), quality=90))
    Path("zoo/dog").mkdir()
    for k in range(8):
        Path(f"zoo/dog/{k}.jpg").write_bytes(encode(make_photograph(950 + k), quality=90))
    more = again()
    assert not bytes_of(more.test) & trained
    assert bytes_of(more.test) >= validated
    dogs = sum(name.startswith("dog/") for name in more.test.names)
    assert dogs == 2
    # A quarter of 32; without contents nobody can say which pictures of the class are new.
    bees = sum(name.startswith("bee/") for name in more.test.names)
    assert bees == (8 if with_contents else 3)


def test_a_moved_or_relabelled_picture_is_recognised(run):
    trained = bytes_of(run.train)
    validated = bytes_of(run.test)
    ants = [Path("zoo", name) for name in run.test.names if name.startswith("ant/")]
    ants[0].rename(ants[0].with_name("renamed.jpg"))
    ants[1].rename(Path("zoo/cat", "relabelled.jpg"))
    bees = sorted(Path("zoo/bee").iterdir(), key=lambda path: int(path.stem))
    for path, after in zip(
        bees[:-1], [bees[-1], *bees[:-2]], strict=True
    ):  # one is removed, the rest are numbered anew
        path.rename(after.with_suffix(".tmp"))
    bees[-1].unlink()
    for path in Path("zoo/bee").glob("*.tmp"):
        path.rename(path.with_suffix(".jpg"))
    left = {path.read_bytes() for path in Path("zoo").rglob("*.jpg")}
    for dataset in (again(), scored(run)):
        assert bytes_of(dataset.test) & (trained | validated) == validated & left
        relabelled = dataset.test.names.index("cat/relabelled.jpg")
        assert dataset.classes[dataset.test.labels[relabelled]] == "cat"
        assert any("have another path or class now" in line for line in dataset.notes)


def test_removed_and_added_pictures_stop_no_evaluation(run, make_photograph, encode):
    gone, *rest = run.test.names
    Path("zoo", gone).unlink()
    Path("zoo/ant/new.jpg").write_bytes(encode(make_photograph(900), quality=90))
    Path("zoo", run.train.names[0]).rename("zoo/cat/relabelled.jpg")
    dataset = scored(run)
    assert list(dataset.test.names) == rest
    (line,) = dataset.notes
    assert line.startswith(f"warning: 1 of the {len(run.test)} validation images that run/")
    assert line.endswith(f"missing: {gone}")
    for name in rest:
        Path("zoo", name).unlink()
    with pytest.raises(ValueError, match=r"9 of the 9 images that run/.* put them back"):
        scored(run)


def test_classes_and_groups_that_went_stop_no_evaluation(zoo, make_photograph, encode):
    grouped = replace(SPLIT, group_by=r"(\d+)\.")
    RUN.mkdir()
    first = open_dataset(grouped, "zoo")
    write_split(RUN, first, is_new=True)
    for name in first.train.names:
        if name.startswith("ant/"):
            Path("zoo", name).unlink()
    shutil.rmtree("zoo/cat")
    Path("zoo/bee/new.jpg").write_bytes(encode(make_photograph(900), quality=90))
    scores = open_dataset(grouped, run=RUN, trained_on=first.input, splits=("test",))
    left = [name for name in first.test.names if not name.startswith("cat/")]
    assert list(scores.test.names) == left
    assert scores.classes == first.classes


def test_other_folders_are_scored_whole(run, make_photograph, encode):
    shutil.copytree("zoo", "copy")
    assert scored(run, "copy").test.names == run.test.names
    for name in ("ant", "bee", "cat"):
        Path("other", name).mkdir(parents=True)
        for k in range(3):
            picture = make_photograph(500 + 10 * len(list(Path("other").rglob("*.jpg"))))
            Path(f"other/{name}/t{k}.jpg").write_bytes(encode(picture, quality=90))
    other = scored(run, "other")
    assert len(other.test) == 9
    shutil.copy(Path("zoo", run.train.names[0]), "other/ant/seen.jpg")
    (line,) = (line for line in scored(run, "other").notes if "trained on" in line)
    assert line.startswith("warning: run was trained on 1 of the 10 images, such as ant/seen.jpg")


def test_a_new_split_warns_of_pictures_already_trained(run):
    other = again(split_seed=5)
    seen = len(bytes_of(other.test) & bytes_of(run.train))
    assert seen > 2
    assert f"run was trained on {seen} of the {len(other.test)}" in "; ".join(other.notes)
    (RUN / "contents.json").unlink()
    assert f"run may have been trained on {seen} of the " in "; ".join(again(split_seed=5).notes)
    (RUN / "validation.json").write_text(json.dumps(other.train.names[:9]))
    assert "run may have been trained on 9 of the 9 " in "; ".join(again(split_seed=5).notes)


def test_unread_files_are_compared_by_name_and_size(run):
    options = RunOptions(check_files="no", progress=False)
    earlier = EarlierRun(RUN, same_split=False)
    other = open_dataset(replace(SPLIT, split_seed=5), "zoo", options=options, weights_of=earlier)
    seen = len(bytes_of(other.test) & bytes_of(run.train))
    assert f"run was trained on {seen} of the {len(other.test)}" in "; ".join(other.notes)


def test_an_unread_set_keeps_its_pictures_by_name(zoo):
    """Of more than 20,000 files, or with --no-check-files, contents are unknown."""
    options = RunOptions(check_files="no", progress=False)
    first = open_dataset(SPLIT, "zoo", options=options)
    RUN.mkdir()
    write_split(RUN, first, is_new=True)
    assert not (RUN / "contents.json").exists()
    second = open_dataset(SPLIT, "zoo", options=options, weights_of=EarlierRun(RUN, True))
    assert second.test.names == first.test.names


def test_a_skipped_validation_file_is_not_missing_later(zoo):
    skip = replace(SPLIT, on_bad_sample="skip")
    damaged = open_dataset(skip, "zoo").test.names[0]
    Path("zoo", damaged).write_bytes(b"damaged")
    RUN.mkdir()
    first = open_dataset(skip, "zoo")
    write_split(RUN, first, is_new=True)
    write_bad_files(RUN, first)
    names = sorted(first.test.names)
    for listed in (names, [*names, damaged]):  # an older version lists skipped files, too
        (RUN / "validation.json").write_text(json.dumps(listed))
        for splits in (("train", "test"), ("test",)):
            later = open_dataset(skip, run=RUN, trained_on=first.input, splits=splits)
            assert later.test.names == first.test.names
            assert not any("missing" in note for note in later.notes)


def test_a_large_foreign_set_is_not_read(run, make_photograph, encode):
    for k in range(12):
        picture = make_photograph(900 + k, 90 + k, 70)
        for name in ("ant", "bee"):
            Path("other", name).mkdir(parents=True, exist_ok=True)
            Path(f"other/{name}/{k}.jpg").write_bytes(encode(picture, quality=95))
    shutil.copy(Path("zoo", run.train.names[0]), "other/ant/seen.jpg")
    opened = set()

    def hear(event, args):
        if event == "open" and str(args[0]).startswith("other/"):
            opened.add(Path(args[0]).name)

    sys.addaudithook(hear)
    options = RunOptions(check_files="no", progress=False)
    open_dataset(SPLIT, "other", options=options, weights_of=EarlierRun(RUN, True))
    assert opened == {"seen.jpg"}


def test_missing_and_new_files_of_val_are_named(folder, make_photograph, encode):
    recipe = replace(SPLIT, validation_share=0.0)
    RUN.mkdir()
    first = open_dataset(recipe, str(folder))
    write_split(RUN, first, is_new=True)
    assert not (RUN / "validation.json").exists()
    (folder / "val/bee/00 ü.JPEG").unlink()
    (folder / "val/bee/new.jpg").write_bytes(encode(make_photograph(900)))
    notes = open_dataset(recipe, run=RUN, trained_on=first.input, splits=("test",)).notes
    assert notes == (
        "warning: 1 of the 9 validation images that run used are missing: bee/00 ü.JPEG",
        "1 validation image is new since run: bee/new.jpg",
    )


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested", "folder"])
@pytest.mark.parametrize("file", ["contents.json", "validation.json"])
def test_devices_and_folders_as_split_files_are_named(kind, file, foreign, run, raises_line):
    foreign(kind, RUN / file)
    with raises_line(f"run/{file}: is damaged", "restore the file from a copy"):
        read_split(RUN)


def test_a_lack_of_descriptors_is_no_damage(run, no_descriptors):
    with pytest.raises(OSError, match="Too many open files"), no_descriptors():
        read_split(RUN)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("contents.json", "[]"),
        ("contents.json", "{}"),
        ("contents.json", '{"format": 1, "training": {}}'),
        ("contents.json", '{"format": 1, "training": {"a": 1}, "validation": {}}'),
        ("validation.json", "{}"),
        ("validation.json", "[1]"),
    ],
)
def test_json_that_no_run_wrote_is_named(file, text, run, raises_line):
    (RUN / file).write_text(text)
    with raises_line(f"run/{file}: is damaged", "restore the file from a copy"):
        read_split(RUN)
