import json

import numpy as np
import pytest

from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.validation import hold_out, split_off, write_validation


def listing(*counts):
    names = [f"{label}/{k}" for label, count in enumerate(counts) for k in range(count)]
    return FileSplit("pictures", tuple(names), np.repeat(np.arange(len(counts)), counts).astype(np.int32))


@pytest.mark.parametrize(
    ("count", "share", "held"), [(10, 0.2, 2), (20, 0.13, 3), (2, 0.1, 1), (2, 0.9, 1), (1, 0.5, 0), (1000, 0.001, 1)]
)
def test_every_class_gives_its_share_and_keeps_a_picture_to_train(count, share, held):
    labels = listing(count, 100, 0, count).labels
    counts = np.bincount(labels[hold_out(labels, share, 0)], minlength=4)
    assert counts.tolist() == [held, max(1, round(100 * share)), 0, held]
    labels = listing(50, 50).labels
    first = hold_out(labels, 0.2, 0)
    assert (hold_out(labels, 0.2, 0) == first).all()
    assert (hold_out(labels, 0.2, 1) != first).any()


def test_what_validated_never_trains(tmp_path):
    train, held = split_off(listing(9, 9), 0.3, 0)
    write_validation(tmp_path, held.names)
    more = listing(30, 12)
    _, again = split_off(more, 0.3, 0, tmp_path)
    assert again.names == held.names
    assert set(split_off(more, 0.3, 0, tmp_path / "none")[1].names) != set(held.names)
    fewer = more.keep(np.array([name != held.names[0] for name in more.names]))
    message = rf"1 validation files are not in pictures any more: {held.names[0]}; put these files back, or start"
    with pytest.raises(ValueError, match=message):
        split_off(fewer, 0.3, 0, tmp_path)
    assert sorted([*train.names, *held.names]) == sorted(listing(9, 9).names)


def test_any_name_is_written_and_nothing_where_nothing_was_split(tmp_path):
    write_validation(tmp_path, ["a/\udcff.png", "b/é\n.png"])
    assert json.loads((tmp_path / "validation.json").read_text()) == ["a/\udcff.png", "b/é\n.png"]
    write_validation(tmp_path / "no such folder", [])
