"""Lists of images, CSV or plain: columns, paths, contradictions."""

import os
import shutil
import tracemalloc
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.lists import load_lists
from resnet_fn.data.sources.load import load_dataset, open_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4, flip=True)
CLASSES = ("bee", "cat with a space", "éléphant")


def listing(train_list, val_list):
    return RunOptions.unchecked({"train_list": train_list, "val_list": val_list})


def write_lists(folder, place=""):
    """Write train.txt and val.txt, with the images in the folder's own order."""
    for half in ("train", "val"):
        paths = sorted((folder / half).rglob("*.JPEG"))
        rows = (f"{place}{path.relative_to(folder)}\t{path.parent.name}\n" for path in paths)
        Path(f"{half}.txt").write_text("".join(rows), encoding="utf-8")
    return listing("train.txt", "val.txt")


def test_lists_and_folders_give_the_same_bits(folder, same_batches):
    lists = write_lists(folder)
    ours = open_dataset(RECIPE, str(folder), options=lists)
    theirs = open_dataset(RECIPE, str(folder))
    assert ours.classes == theirs.classes == CLASSES
    assert ours.test.labels.tolist() == theirs.test.labels.tolist()
    assert ours.input.train_list == str(Path("train.txt").resolve())
    same_batches(make_feed(ours, RECIPE), make_feed(theirs, RECIPE), (0, 3, 6))
    shared = RECIPE.changed(validation_share=0.2)
    note = open_dataset(shared, str(folder), options=lists).notes[-1]
    assert note == "val.txt is the validation set, so nothing is split off the training images"
    # A trained net brings its classes and lists with it; another list may be scored, without the
    # training list.
    Path("train.txt").unlink()
    Path("other.txt").write_text(f"{theirs.test.path(4)}\tcat with a space\n")
    how = {"trained_on": ours.input, "splits": ("test",)}
    again = open_dataset(RECIPE, **how)
    assert (again.test.names, again.validates) == (ours.test.names, True)
    other = open_dataset(RECIPE, **how, options=listing("", "other.txt"))
    assert (other.test.labels.tolist(), other.classes, len(other.train)) == ([1], CLASSES, 0)
    assert not other.validates


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_net_trained_on_lists_scores_other_folders(folder, is_absolute):
    lists = write_lists(folder, f"{folder}/" if is_absolute else "")
    trained_on = open_dataset(RECIPE, str(folder), options=lists).input
    shutil.copytree(folder / "val" / CLASSES[1], Path("T", CLASSES[1]))
    other = open_dataset(RECIPE, "T", trained_on=trained_on, splits=("test",))
    assert (other.test.root, other.test.labels.tolist()) == ("T", [1, 1, 1])
    shutil.copytree(folder, "moved")
    moved = open_dataset(RECIPE, "moved", trained_on=trained_on, splits=("test",))
    assert moved.test.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert moved.test.path(0).startswith("moved/val/bee")


@pytest.fixture
def pictures(make_photograph, encode):
    """a.jpg, b c.jpg, d.jpg and e.jpg in set."""
    Path("set").mkdir()
    for name in ("a.jpg", "b c.jpg", "d.jpg", "e.jpg"):
        Path("set", name).write_bytes(encode(make_photograph(ord(name[0]))))


def load(train, val="a.jpg x\nd.jpg y\n", known=(), kind="txt", several=False):
    Path(f"train.{kind}").write_text(train, newline="")
    Path("val.txt").write_text(val)
    return load_lists("set", f"train.{kind}", "val.txt", known, several)


def test_an_index_without_a_name_is_no_group(pictures):
    """pandas writes a first column whose cell in the header is empty."""
    dataset = load(",path,label\n0,a.jpg,x\n1,d.jpg,y\n", kind="csv")
    assert list(dataset.train.names) == ["a.jpg", "d.jpg"]
    assert dataset.train.groups is None


def test_paths_have_spaces_and_numbers_sort_as_numbers(pictures):
    whole = f"{Path.cwd()}/set/d.jpg"
    dataset = load(f"b c.jpg 10\n\n{whole}\t2\ne.jpg 0\ne.jpg 0\n", "a.jpg 2\n")
    assert dataset.classes == ("0", "2", "10")
    assert dataset.train.labels.tolist() == [2, 1, 0, 0]  # a line that is given twice counts twice
    assert dataset.train.path(0) == "set/b c.jpg"
    assert dataset.train.path(1) == whole
    assert dataset.notes == ()
    notes = load("a.jpg x\nd.jpg y\n", "./a.jpg x\ne.jpg y\n").notes
    assert notes == (
        "warning: 1 image is in both lists, such as ./a.jpg, so the evaluation can be too good",
    )


def test_one_list_gives_training_files_and_groups(pictures):
    Path("all.csv").write_text("path,label,Patient\na.jpg,x,p1\nb c.jpg,y,p2\nd.jpg,x,p1\n")
    dataset = load_lists("set", "all.csv", "", group_by="patient")
    assert (len(dataset.test), dataset.test.groups, dataset.test.labels.shape) == (0, None, (0,))
    assert dataset.train.groups == ("p1", "p2", "p1")
    assert dataset.train.keep(np.array([True, True, False])).groups == ("p1", "p2")
    assert load_lists("set", "all.csv", "all.csv", group_by="scanner").train.groups is None


MISTAKES = {
    "txt": [
        (
            "a.jpg,x\n",
            "train.txt line 1: 'a.jpg,x' has no class; a table with commas begins with a line "
            "path,label",
        ),
        ("x a.jpg\n", "train.txt line 1: 'a.jpg' is a file name, not a class; write PATH CLASS"),
        (
            "a.jpg x\nb c.jpg x\n",
            "train_list: train.txt has one class only, 'x'; add images of more classes",
        ),
        (
            "a.jpg x\nd.jpg y\n./a.jpg y\n",
            "train.txt line 3: ./a.jpg has class 'y', but line 1 has 'x'; keep one line",
        ),
    ],
    "csv": [
        (
            "path,label\na.jpg,x\nd.jpg\n",
            "train.csv line 3: has 1 cells, but the header has 2; fix the line",
        ),
        ("path,label\na.jpg,\n", "train.csv line 2: has no class; fill the cell"),
        ("path,label\n", "train_list: train.csv names no images; "),
    ],
    "several": [
        ("a.jpg w;y\n", "val.txt line 1: 'x' is not a class of train.txt; use one of w, y"),
        (
            "a.jpg x\n./a.jpg x;y\n",
            "train.txt line 2: ./a.jpg has class 'x;y', but line 1 has 'x'; write both on one "
            "line, with ;",
        ),
    ],
}


# More are in tests/test_mistakes.py.
@pytest.mark.parametrize(
    ("form", "train", "message"), [(form, *row) for form, rows in MISTAKES.items() for row in rows]
)
def test_mistakes_are_named_with_their_line(pictures, raises_line, form, train, message):
    with raises_line(message):
        load(train, kind="csv" if form == "csv" else "txt", several=form == "several")


def test_a_class_unknown_to_the_net_is_rejected(pictures, raises_line):
    with raises_line("val.txt line 2: 'y' is not a class of the trained net; use"):
        load("a.jpg x\n", known=("x", "z"))


SEVERAL = RECIPE.changed(multi_label=True, loss="bce", label_smoothing=0.0, monitor="map")


def test_images_may_have_no_or_several_classes(pictures, raises_line):
    Path("train.txt").write_text("a.jpg x\n")
    Path("val.txt").write_text("a.jpg\n")
    with raises_line("test set: no image has a class; add classes"):
        open_dataset(SEVERAL, "set", options=listing("train.txt", "val.txt"))
    Path("train.txt").write_text("a.jpg y;x\nb c.jpg\tz ; x;x\nd.jpg\ne.jpg\t\n")
    Path("val.csv").write_text("image,labels\ne.jpg,y\na.jpg,\n")
    dataset = open_dataset(SEVERAL, "set", options=listing("train.txt", "val.csv"))
    assert dataset.classes == ("x", "y", "z")
    assert dataset.train.labels.dtype == np.float32
    assert dataset.train.labels.tolist() == [[1, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert dataset.test.labels.tolist() == [[0, 1, 0], [0, 0, 0]]
    assert {
        "classes     3 images have none, 1 one, 2 several",
        "the test set has no images of 2 of the 3 classes: x, z",
    } < set(dataset.notes)
    feed = make_feed(dataset, SEVERAL)
    assert feed.batch(0)[1].tolist() == dataset.train.labels[feed.indices(0)].tolist()
    feed.close()
    # Another order of an image's classes is the same; evaluation takes the classes from the
    # checkpoint.
    other = open_dataset(SEVERAL, "set", trained_on=dataset.input, splits=("test",))
    assert other.test.labels.tolist() == dataset.test.labels.tolist()
    assert load("a.jpg\tx;y\na.jpg\ty; x\n", several=True).train.labels.tolist() == [[1, 1], [1, 1]]
    # one class: there or not
    assert load("a.jpg x\nd.jpg\n", "a.jpg x\n", several=True).classes == ("x",)


def test_several_classes_need_a_list_and_multi_label(pictures, raises_line):
    with raises_line("multi_label: images in class folders have one class; give --train-list "):
        load_dataset(SEVERAL, "set")
    assert load("a.jpg x;y\nd.jpg x\n", "a.jpg x\n").notes[-1] == (
        "warning: 'x;y' is one class here; for images of several classes, give --multi-label"
    )


CSV = "path,label\r\na.jpg,x\r\nd.jpg,y\r\n"
TEXT = "a.jpg x\r\nd.jpg y\r\n"
WRITTEN = {
    "UTF-16 of PowerShell": ("t.csv", CSV.encode("utf-16")),
    "UTF-16, big end first": ("t.csv", b"\xfe\xff" + CSV.encode("utf-16-be")),
    "UTF-8 with a mark": ("t.csv", CSV.encode("utf-8-sig")),
    "text with a mark": ("t.txt", TEXT.encode("utf-8-sig")),
    "semicolons": ("t.csv", CSV.replace(",", ";").encode()),
    "Excel's Unicode text": ("t.txt", CSV.replace(",", "\t").encode("utf-16")),
    "a separator for Excel": ("t.csv", b"sep=;\r\n" + CSV.replace(",", ";").encode()),
    "a tab as separator": ("t.csv", b"sep=\t\n" + CSV.replace(",", "\t").encode()),
    "Export-Csv": (
        "t.csv",
        b'#TYPE System.Object\r\n"Path","Label"\r\n"a.jpg","x"\r\n"d.jpg","y"\r\n',
    ),
    "text with a header": ("t.txt", b"File Class\n" + TEXT.encode()),
    "lines of spaces in a .csv": ("t.csv", TEXT.encode()),
    "rows that Excel emptied": ("t.csv", CSV.encode() + b",\r\n,\r\n"),
    "lines of an old Mac": ("t.csv", CSV.replace("\r\n", "\r").encode()),
    "a break in another column": ("t.csv", b'ID,Class,"Path"\n"1\n2",x,a.jpg\n,"y",d.jpg\n'),
}


@pytest.mark.parametrize(("name", "written"), WRITTEN.values(), ids=WRITTEN)
def test_lists_are_read_as_other_programs_write_them(pictures, name, written):
    Path(name).write_bytes(written)
    dataset = load_lists("set", name, name)
    assert (list(dataset.train.names), dataset.classes) == (["a.jpg", "d.jpg"], ("x", "y"))
    assert dataset.train.labels.tolist() == dataset.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        (
            "path,label\ncafé.jpg,x\n".encode("cp1252"),
            "t.csv line 2: 'café.jpg'|save the file as UTF-8",
        ),
        ("path,label\na.jpg,x\nd.jpg,été\n".encode("cp1252"), "t.csv line 3: 'été'|as UTF-8"),
        (b'path,label\na.jpg,x\n"d\n.jpg",y\n', "t.csv line 3: 'd\\n.jpg'|line break"),
        (b'path,label,note\na.jpg,x,"\nd.jpg,y,\n', "t.csv line 2: |close each quotation mark"),
        (b'path,note,label\na.jpg,"1\n2",x\na.jpg,,y\n', "t.csv line 4: a.jpg|'y'|line 2 has 'x'"),
        (CSV.encode("utf-16-le"), "train_list: t.csv is not in UTF-8|save it as UTF-8"),
        (CSV.encode("utf-16")[:-1], "train_list: t.csv is no UTF-16|save it as UTF-8"),
        (
            b"path,label\nC:\\p\\a.jpg,x\n",
            "t.csv line 2: |C:\\p\\a.jpg does not exist|paths of this machine",
        ),
    ],
)
def test_damaged_lists_are_named_with_a_fix(pictures, raises_line, written, parts):
    Path("t.csv").write_bytes(written)
    with raises_line(*parts.split("|")):
        load_lists("set", "t.csv", "")


@pytest.mark.parametrize("known", [(), ("x", "y")])
def test_a_validation_list_without_a_file_is_rejected(pictures, raises_line, known):
    with raises_line("val.txt line 1: set/elsewhere/a.jpg does not exist", "--data-dir"):
        load("a.jpg x\nd.jpg y\n", "elsewhere/a.jpg x\n", known)


def test_names_with_odd_bytes_and_newlines_are_read(pictures):
    names = [b"caf\xe9.jpg", b"two\nlines.jpg"]
    for name in names:
        shutil.copy("set/a.jpg", b"set/" + name)
    Path("t.csv").write_bytes(b'path,label\n"' + b'",x\n"'.join(names) + b'",y\n')
    train = load_lists("set", "t.csv", "").train
    assert [os.fsencode(name) for name in train.names] == names
    assert len(train.read(0)) == os.stat(train.path(0)).st_size


def nfd(text):
    return unicodedata.normalize("NFD", text)


def test_listed_paths_match_files_despite_slashes_and_accents(pictures):
    Path("set/é").mkdir()
    Path("set/a.jpg").rename("set/é/a.jpg")
    rows = "é\\a.jpg x\nd.jpg y\n"
    for train in (rows, nfd(rows)):
        dataset = load(train, "d.jpg y")
        assert list(dataset.train.names) == ["é/a.jpg", "d.jpg"]
        assert dataset.notes[0].startswith("train.txt: paths are read with / for \\")
    Path("set/é").rename("set/" + nfd("é"))
    assert list(load(rows, "d.jpg y").train.names) == [nfd("é") + "/a.jpg", "d.jpg"]


def test_classes_are_equal_in_both_forms_of_unicode(pictures):
    train = f"a.jpg été\nb c.jpg\t{nfd('été')}\nd.jpg z\nd.jpg z\n"
    dataset = load(train, f"e.jpg {nfd('été')}\n")
    assert dataset.classes == ("z", "été")
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([1, 1, 0, 0], [1])
    assert dataset.notes[0].startswith(
        "warning: class names differ only in case, spaces or Unicode's normal form"
    )
    # A class has the form of the list if the list has only one, because runs have stored such
    # names.
    assert load(f"a.jpg {nfd('été')}\nd.jpg z\n", "e.jpg été\n").classes == (nfd("été"), "z")
    known = ("z", nfd("été"))
    dataset = load_lists("set", "", "val.txt", known)
    assert (dataset.test.labels.tolist(), dataset.classes) == ([1], known)


def test_a_list_needs_under_200_bytes_a_row(pictures):
    rows = [f"images/class_{k % 1000:04d}/IMG_{k:08d}.jpg" for k in range(40_000)]
    with open("t.csv", "w") as file:
        file.write("path,patient,label\na.jpg,p0,c0\n")
        file.writelines(f"{path},p{k // 100},c{k % 1000}\n" for k, path in enumerate(rows))
    Path("v.csv").write_text("path,label\nd.jpg,c0\n")
    tracemalloc.start()
    dataset = load_lists("set", "t.csv", "v.csv", group_by="patient")
    held, peak = (number / len(rows) for number in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert list(dataset.train.names[1:]) == rows
    assert held < 90
    assert peak < 200


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested", "folder"])
def test_a_device_or_folder_as_list_is_named(kind, foreign, pictures, raises_line):
    foreign(kind, "train.txt")
    with raises_line("train.txt", "; "):
        load_lists("set", "train.txt", "")


def test_a_line_has_at_most_a_million_characters(pictures, raises_line):
    longest = "d.jpg" + " " * ((1 << 20) - len("d.jpgy")) + "y"
    assert len(load(f"a.jpg x\r\n{longest}\r\n").train) == 2
    with raises_line("train_list: train.txt", "more than 1,048,576 characters", "write a line"):
        load(f"a.jpg x\n{longest}y")


def test_labels_like_formulas_are_read_back(pictures):
    train = "path,label\na.jpg,'=1+1\nc.jpg,-1\nd.jpg,'@x\ne.jpg,''-2+3\n"
    assert load(train, "a.jpg =1+1", kind="csv").classes == ("'-2+3", "-1", "=1+1", "@x")
