"""Labels: the mistake is named; the order of samples is information."""

import numpy as np
import pytest

from resnet_fn.parity.inputs.labels import compare_labels, words_of_order
from resnet_fn.parity.trace.difference import DIFFERS, OK

NAMES = [f"{name}/{place}.png" for name in ("10", "2", "Zebra", "ant") for place in range(3)]
BY_LETTERS = {"10": 0, "2": 1, "Zebra": 2, "ant": 3}
BY_NUMBERS = {"2": 0, "10": 1, "Zebra": 2, "ant": 3}
WITHOUT_CASE = {"10": 0, "2": 1, "ant": 2, "Zebra": 3}


def labels(numbers, form=np.int64):
    return {name: np.array(form(numbers[name.partition("/")[0]])) for name in NAMES}


def one_hot(numbers, smoothing=0.0):
    return labels(numbers, lambda index: np.eye(4)[index] * (1 - smoothing) + smoothing / 4)


def test_equal_labels_agree():
    result = compare_labels(labels(BY_LETTERS), labels(BY_LETTERS))
    assert (result.verdict, result.compared, result.words) == (OK, 12, "")


def test_types_of_labels_are_a_note():
    result = compare_labels(labels(BY_LETTERS, np.int32), labels(BY_LETTERS))
    assert result.verdict == OK
    assert result.notes == ["labels: int32 in the port, int64 in the reference"]


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (
            {name: index - 1 for name, index in BY_LETTERS.items()},
            "an offset: each index is 1 less",
        ),
        (
            {name: index + 2 for name, index in BY_LETTERS.items()},
            "an offset: each index is 2 more",
        ),
        (BY_NUMBERS, "class order: 10/0.png is 1 in the port, 0 in the reference (classes sorted"),
        (WITHOUT_CASE, "sorted without regard to case in the port, sorted by letters in the"),
        (dict.fromkeys(BY_LETTERS, 2), "9 of 12 labels: 2 in the port, 0 in the reference"),
    ],
)
def test_mistakes_of_labels_are_named(port, words):
    result = compare_labels(labels(port), labels(BY_LETTERS))
    assert result.verdict == DIFFERS
    assert words in result.words


def test_one_hot_labels_are_compared_by_class():
    result = compare_labels(one_hot(BY_LETTERS), labels(BY_LETTERS))
    assert result.verdict == DIFFERS
    assert result.words == "one-hot of 4 classes in the port, an index in the reference"
    other = compare_labels(one_hot(BY_NUMBERS), one_hot(BY_LETTERS))
    assert other.words.startswith("class order")


def test_smoothed_labels_are_named():
    result = compare_labels(one_hot(BY_LETTERS, 0.1), one_hot(BY_LETTERS))
    assert "one-hot of 4 classes with label smoothing in the port" in result.words


def test_another_amount_of_smoothing_is_told():
    little = one_hot(BY_LETTERS, 0.1)
    result = compare_labels(little, one_hot(BY_LETTERS, 0.3))
    assert result.verdict == DIFFERS
    assert result.first == "10/0.png"
    assert result.words == (
        "amount of smoothing: entry 0 of 10/0.png is 0.925 in the port, 0.775 in the reference"
    )
    half = {name: label.astype(np.float16) for name, label in little.items()}
    assert compare_labels(half, little).verdict == OK


def test_labels_of_several_classes_are_compared_by_value():
    several = labels(BY_LETTERS, lambda index: np.array([1.0, 1.0, 0.0, float(index)]))
    other = labels(BY_LETTERS, lambda index: np.array([1.0, 1.0, 0.0, 0.0]))
    assert compare_labels(several, several).verdict == OK
    assert compare_labels(several, other).verdict == DIFFERS


def test_missing_labels_are_not_compared():
    without = dict.fromkeys(NAMES)
    result = compare_labels(without, labels(BY_LETTERS))
    assert "the reference's samples have labels" in result.words
    assert compare_labels(without, without).verdict == ""


def test_the_order_of_samples_is_said():
    assert "the first 3 are the same" in words_of_order(["a", "b", "c"], ["a", "b", "c", "d"])
    line = words_of_order(["b", "a"], ["a", "b"])
    assert line == "order of samples: b, a in the port; a, b in the reference"
    assert words_of_order([], ["a"]) == ""
