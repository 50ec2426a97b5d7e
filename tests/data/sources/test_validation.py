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


def test_the_split_ignores_the_place_of_the_folder():
    files = listing(40, 25)
    moved = replace(files, root="/elsewhere")
    absolute = replace(moved, names=[f"/elsewhere/{name}" for name in files.names])
    first, *others = (split_off(each, 0.2, SplitRule())[1] for each in (files, moved, absolute))
    assert [*others[0].names] == [*first.names]
    assert [*others[1].names] == [f"/elsewhere/{name}" for name in first.names]


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.77, 0.99])
def test_one_picture_changes_at_most_two_memberships(share):
    """Of its own class alone; added or, read the other way, removed; also in tiny classes."""
    for count, number in itertools.product((1, 2, 3, 9, 40), range(20)):
        files = listing(count, 17)
        new = f"0/new-{number}.jpg"
        more = FileSplit("", (*files.names, new), np.append(files.labels, 0))
        after = held(more, share)
        changed = held(files, share) ^ after
        assert len(changed) <= 2
        of_class = {name for name in more.names if name.startswith("0/")}
        assert changed <= of_class
        assert not of_class <= after


def test_groups_are_never_divided():
    """Frames of one video in one class; patients with pictures of several classes."""
    rng = np.random.default_rng(1)
    for seed, spanning in itertools.product(range(10), (False, True)):
        groups = np.repeat(np.arange(24), rng.integers(1, 10, 24))
        labels = rng.integers(3, size=len(groups)) if spanning else groups % 3
        mask = hold_out([f"video {group}" for group in groups], labels, 0.25, seed)
        assert not {*groups[mask]} & {*groups[~mask]}
        for label in range(3):
            validating = len({*groups[mask & (labels == label)]})
            assert 1 <= validating < len({*groups[labels == label]})
            assert spanning or validating == 2  # round(0.25 · 8)


def test_with_several_labels_each_class_keeps_training_pictures():
    shares = np.linspace(0.01, 0.5, 12)
    labels = (np.random.default_rng(0).random((400, 12)) < shares).astype(np.float32)
    mask = hold_out([f"{k}.jpg" for k in range(400)], labels, 0.2, 0)
    validating, counts = labels[mask].sum(0), labels.sum(0)
    assert (np.maximum(1, np.round(0.2 * counts)) <= validating).all()
    assert (validating < counts).all()
    assert mask.mean() < 0.35


def test_a_split_needs_a_class_of_two_images(raises_line):
    with raises_line("validation_share: no class in pictures has two images", "add images"):
        split_off(listing(1, 1), 0.2, SplitRule())


def test_pictures_already_trained_on_are_never_validated():
    labels = np.zeros(100, np.int32)
    sides = np.repeat(np.int8([-1, 1, 0]), [40, 10, 50])
    mask = hold_out(list(map(str, range(100))), labels, 0.3, 0, sides)
    assert (mask[:40].sum(), mask[40:50].sum(), mask[50:].sum()) == (0, 10, 20)
    # Of five groups, two trained, and one validated.
    mask = hold_out([str(k // 20) for k in range(100)], labels, 0.3, 0, sides)
    assert (mask[:40].sum(), mask[40:60].sum()) == (0, 20)
