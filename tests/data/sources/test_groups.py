"""Groups of images stay whole in a split."""

import re
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.groups import suggest_groups
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.data.sources.validation import SplitRule, split_off


def split(names, group_by):
    labels = np.array([int(name.startswith("b")) for name in names], np.int32)
    return split_off(FileSplit("pictures", tuple(names), labels), 0.3, SplitRule(group_by=group_by))


SHOTS = [(label, patient, shot) for label in "ab" for patient in range(6) for shot in range(5)]
FRAMES = [f"{label}/{label}{patient:02}_{shot:02}.png" for label, patient, shot in SHOTS]
PATIENTS = [f"{label}/patient {patient}/{shot}.png" for label, patient, shot in SHOTS]


@pytest.mark.parametrize(
    ("names", "group_by", "group_of"),
    [
        (FRAMES, r"(\w+)_\d+", lambda name: name.partition("/")[2].partition("_")[0]),
        (FRAMES, r"[ab]\d\d", lambda name: name[2:5]),
        (PATIENTS, "2", lambda name: name.split("/")[1]),  # the same patient in both classes
    ],
)
def test_frames_of_one_patient_stay_on_one_side(names, group_by, group_of):
    train, validation, notes = split(names, group_by)
    assert len(validation) >= 10
    groups, kept, held = (
        {*map(group_of, paths)} for paths in (names, train.names, validation.names)
    )
    assert not kept & held
    assert f"{len(groups) - len(held)} groups in training, {len(held)} in validation" in notes[0]
    assert set(split(names, "")[0].names) & set(validation.names)  # another split than by pictures


def test_empty_cells_are_no_group(raises_line):
    groups = ("", "", *("one", "two", "three") * 6)
    files = FileSplit("", tuple(FRAMES[:20]), np.zeros(20, np.int32), groups=groups)
    fault = f"2 of 20 names have no cell 'patient': {FRAMES[0]}"
    with raises_line("group_by: 'patient' does not fit all files", fault):
        split_off(files, 0.3, SplitRule(group_by="patient"))


def test_a_single_list_is_split_by_its_column(folder, raises_line):
    """(A list with absolute paths: tests/run/test_split.py.)"""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.JPEG"))
    rows = [f"{path},{path.parent.name},patient {k % 5}\n" for k, path in enumerate(files)]
    Path("all.csv").write_text(f"path,label,patient\n{''.join(rows)}", encoding="utf-8")

    def opened(**changes):
        recipe = Recipe(dataset="imagefolder", image_size=24, validation_share=0.3, **changes)
        options = RunOptions(train_list="all.csv", progress=False)
        return open_dataset(recipe, str(folder), options=options)

    assert np.bincount(opened().test.labels).tolist() == [3, 3, 3]  # of 10 each
    grouped = opened(group_by="patient")
    sides = [{*half.groups} for half in (grouped.train, grouped.test)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 5
    with raises_line("group_by: 'slide' does not fit all files", "a column of the list"):
        opened(group_by="slide")


@pytest.mark.parametrize(
    ("group_by", "parts"),
    [
        ("3", ("60 of 60 names have no folder level 3", "a/a00_00.png", "give a folder level")),
        ("(", ("'(' is not a pattern", "give a folder level such as 2")),
        (
            "(a0[0-3])",
            ("40 of 60 names have no match", "a/a04_00.png", "pattern that fits all names"),
        ),
        ("png", ("'png' puts all images of each class into one group", "give another")),
        ("1", ("'1' puts all images of each class into one group", "give another")),
    ],
)
def test_a_grouping_that_cannot_work_is_an_error(group_by, parts, raises_line):
    with raises_line("group_by: ", *parts):
        split(FRAMES, group_by)


@pytest.mark.parametrize(
    ("names", "source"),
    [
        ([f"a/bird-{k}-{n}.png" for k in "xyz" for n in range(5)], r"bird-\w"),
        (
            [f"a/{p}/clip{k}_{n}.jpg" for p in "xyz" for k in (1, 2) for n in range(9)],
            r"a/./clip\d",
        ),
        ([f"a/{k}_jpg.rf.{n}0abc.jpg" for k in range(9) for n in range(3)], r"\d_jpg"),
        (
            [f"a/{k}{end}.jpg" for k in range(9) for end in ("", " (1)", " - Copy", " copy 2")],
            r"a/\d",
        ),
    ],
)
def test_frame_and_copy_names_get_a_working_pattern(names, source):
    (pattern,) = re.findall("--group-by '(.*)'$", "\n".join(split(names, "")[2]), re.MULTILINE)
    *halves, _ = split(names, pattern)
    train, test = ({re.search(source, name)[0] for name in half.names} for half in halves)
    assert train
    assert test
    assert not train & test


@pytest.mark.parametrize(
    "names",
    [
        [f"a/{k:04}.jpg" for k in range(30)],
        [f"a/bee ({k}).jpg" for k in range(1, 30)],
        [f"{c}/{c}_{k}.JPEG" for c in ("n01440764", "n01443537") for k in range(30)],
        [f"a/{k}-{k * 7919 % 101}.png" for k in range(30)],
        [f"a/patient {p}/{k}.png" for p in range(6) for k in range(9)],
    ],
)
def test_numbered_names_are_no_frames(names):
    labels = np.unique([name.partition("/")[0] for name in names], return_inverse=True)[1]
    assert suggest_groups(names, labels) == []


def test_frames_in_a_late_class_are_found():
    names = [f"a/{k:05}.jpg" for k in range(25_000)]
    names += [f"b/clip{k // 3}_{k % 3}.jpg" for k in range(2_000)]
    labels = np.repeat(np.array([0, 1], np.int32), [25_000, 2_000])
    (note,) = suggest_groups(names, labels)
    assert "such as b/clip" in note


@pytest.mark.parametrize("setting", [{"split_seed": 3}, {"group_by": "2"}])
def test_settings_of_a_split_need_a_split(setting, raises_line):
    (name,) = setting
    with raises_line(f"{name}: ", "needs --validation-share"):
        Recipe(dataset="imagefolder", **setting)
    with raises_line(f"{name}: ", "needs --dataset imagefolder"):
        Recipe(**setting)
