"""The validation images of a run stay its own when files come and go."""

import itertools
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest

from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.validation import SplitRule, hold_out, split_off


def listing(*counts):
    names = [f"{label}/{k}.jpg" for label, count in enumerate(counts) for k in range(count)]
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    return FileSplit("pictures", tuple(names), labels)


def held(files, share=0.2, seed=0):
    """The names that are held out."""
    return {*files.keep(hold_out(files.names, files.labels, share, seed)).names}


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(10, 0.2, 2), (20, 0.13, 3), (2, 0.1, 1), (2, 0.9, 1), (1, 0.5, 0), (1000, 0.001, 1)],
)
def test_a_split_takes_a_share_of_every_class(count, share, expected):
    files = listing(count, 100, 0, count)
    mask = hold_out(files.names, files.labels, share, 0)
    counts = np.bincount(files.labels[mask], minlength=4)
    assert counts.tolist() == [expected, max(1, round(100 * share)), 0, expected]


def test_the_smallest_hashes_of_seed_and_path_validate():
    """The rule as it is documented, by itself: BLAKE2b of "seed, NUL, path", 8 bytes."""
    files = listing(30, 12)
    for seed in (0, 7):
        expected = set()
        for label, count in ((0, 6), (1, 2)):
            names = [name for name in files.names if name.startswith(f"{label}/")]
            names.sort(key=lambda name: blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest())
            expected |= set(names[:count])
        assert held(files, seed=seed) == expected
    assert held(files) != held(files, seed=7)


def test_the_split_ignores_order_folders_and_other_classes():
    one = listing(40)
    both = listing(40, 25)
    assert held(one) == {name for name in held(both) if name.startswith("0/")}
    order = np.random.default_rng(0).permutation(len(both))
    names = tuple(np.array(both.names)[order])
    assert held(FileSplit("", names, both.labels[order])) == held(both)
    moved = replace(both, root="/elsewhere")
    absolute = replace(moved, names=tuple(f"/elsewhere/{name}" for name in both.names))
    first, second, third = (split_off(one, 0.2, SplitRule())[1] for one in (both, moved, absolute))
    assert second.names == first.names
    assert list(third.names) == [f"/elsewhere/{name}" for name in first.names]


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.77, 0.99])
def test_one_picture_changes_at_most_two_memberships(share):
    """Of its own class alone; added or, read the other way, removed; also in tiny classes."""
    for count, number in itertools.product((1, 2, 3, 9, 40), range(20)):
        files = listing(count, 17)
        new = f"0/new-{number}.jpg"
        more = FileSplit("", (*files.names, new), np.append(files.labels, 0))
        before = held(files, share)
        after = held(more, share)
        changed = before ^ after
        assert len(changed) <= 2
        assert all(name.startswith("0/") for name in changed)
        assert not after >= {name for name in more.names if name.startswith("0/")}


def test_groups_are_never_divided():
    """Frames of one video in one class; patients with pictures of several classes."""
    rng = np.random.default_rng(1)
    for seed, spanning in itertools.product(range(10), (False, True)):
        groups = []
        labels = []
        for number in range(24):
            label = number % 3
            for _ in range(int(rng.integers(1, 10))):
                groups.append(f"video {number}")
                labels.append(int(rng.integers(3)) if spanning else label)
        mask = hold_out(groups, np.array(labels), 0.25, seed)
        sides = {group: set() for group in groups}
        for group, is_held in zip(groups, mask, strict=True):
            sides[group].add(bool(is_held))
        assert all(len(side) == 1 for side in sides.values())
        for label in range(3):
            of_class = {group for group, one in zip(groups, labels, strict=True) if one == label}
            validating = sum(True in sides[group] for group in of_class)
            assert 1 <= validating < len(of_class)
            assert spanning or validating == 2  # round(0.25 · 8)


def test_with_several_labels_each_class_keeps_training_pictures():
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 12)) < np.linspace(0.01, 0.5, 12)).astype(np.float32)
    mask = hold_out([f"{k}.jpg" for k in range(400)], labels, 0.2, 0)
    for label in range(12):
        count = int(labels[:, label].sum())
        validating = int(labels[mask, label].sum())
        assert max(1, round(0.2 * count)) <= validating < count
    assert mask.mean() < 0.35


def test_a_split_needs_a_class_of_two_images(raises_line):
    with raises_line("validation_share: no class in pictures has two images", "add images"):
        split_off(listing(1, 1), 0.2, SplitRule())


def test_pictures_already_trained_on_are_never_validated():
    names = [f"{k}.jpg" for k in range(100)]
    labels = np.zeros(100, np.int32)
    sides = np.array([-1] * 40 + [1] * 10 + [0] * 50, np.int8)
    mask = hold_out(names, labels, 0.3, 0, sides)
    assert mask.sum() == 30
    assert not mask[:40].any()
    assert mask[40:50].all()
    groups = [f"{k // 20}" for k in range(100)]  # of five groups, two trained, and one validated
    grouped = hold_out(groups, labels, 0.3, 0, sides)
    assert not grouped[:40].any()
    assert grouped[40:60].all()
