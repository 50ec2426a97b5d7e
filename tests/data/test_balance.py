"""Class weights and balanced sampling, by their formulas."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from resnet_fn.data.balance import balanced_order, class_balance, class_weights, describe_balance

LABELS = np.repeat([0, 1, 2], [60, 30, 7]).astype(np.int32)
CLASSES = ("bee", "cat with a space", "éléphant")


def test_balanced_weights_are_scikit_learns():
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    weights = class_weights("balanced", CLASSES, LABELS)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    with_empty = class_weights("balanced", (*CLASSES, "none"), LABELS)
    np.testing.assert_allclose(with_empty, [*expected, 0], rtol=1e-12)
    assert class_weights("", CLASSES, LABELS) == ()


@pytest.mark.parametrize(
    "written",
    [
        "éléphant 9\n\nbee 1\ncat with a space  2.5 \n".encode(),
        "class;weight\r\nbee;1\r\ncat with a space;2.5\r\néléphant;9\r\n".encode("utf-16"),
        "bee\t1\ncat with a space\t2.5\néléphant\t9\n".encode("utf-8-sig"),
        'Label,Weight\n"bee",1\n"cat with a space",2.5\ne\u0301le\u0301phant,9\n'.encode(),
    ],
)
def test_weights_are_read_as_other_programs_write_them(written):
    Path("w.txt").write_bytes(written)
    weights = np.array(class_weights("w.txt", CLASSES, LABELS))
    np.testing.assert_allclose(weights / weights[0], [1, 2.5, 9], rtol=1e-12)
    assert np.mean(weights[LABELS]) == pytest.approx(1)


def test_class_weights_average_1_under_balanced_sampling():
    Path("w.txt").write_text("éléphant 9\nbee 1\ncat with a space 2.5\n", encoding="utf-8")
    weights = class_weights("w.txt", CLASSES, LABELS, "balanced")
    np.testing.assert_allclose(weights, np.divide([1, 2.5, 9], np.mean([1, 2.5, 9])), rtol=1e-12)
    # A run of an older version goes on with the scale that it began with.
    older = class_weights("w.txt", CLASSES, LABELS)
    assert older != weights
    assert class_weights("w.txt", CLASSES, LABELS, "balanced", older) == older
    other = (*older[:2], older[2] * 1.01)
    assert class_weights("w.txt", CLASSES, LABELS, "balanced", other) == weights


# More are in tests/test_mistakes.py.
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bee one\n", "w.txt line 1: |'one'|a number above 0"),
        ("bee nan\n", "w.txt line 1: |'nan'|a number above 0"),
        ("bee 1\n", "w.txt: |cat with a space, éléphant|a line CLASS WEIGHT"),
        ("class;weight\nbee;0,5\n", "w.txt line 2: weight '0,5'|a number such as 0.5"),
        ("bee\n", "w.txt line 1: 'bee' has no weight; write CLASS WEIGHT"),
        ("bee 1\n\nbee 3\n", "w.txt line 3: 'bee' has weight 3, but line 1 has 1; keep one line"),
        (
            "éléphant 0.5\ne\u0301le\u0301phant 2\n",
            "w.txt line 2: 'éléphant' has weight 2, but line 1 has 0.5; keep one line",
        ),
    ],
)
def test_mistakes_in_a_file_of_weights_are_named(text, parts, raises_line):
    Path("w.txt").write_text(text, encoding="utf-8")
    with raises_line(*parts.split("|")):
        class_weights("w.txt", CLASSES, LABELS)


def test_an_equal_weight_may_be_repeated():
    Path("w.txt").write_text("a 1\nb 2\nb 2.0\n")
    assert class_weights("w.txt", ("a", "b"), np.array([0, 1])) == pytest.approx((2 / 3, 4 / 3))


def test_the_balance_is_listed_class_by_class():
    assert class_balance("shuffle", (), 3, LABELS) == []
    weights = class_weights("balanced", CLASSES, LABELS)
    weighted = class_balance("shuffle", weights, 3, LABELS)
    assert [(row["loss_weight"], row["times_seen"]) for row in weighted] == [
        (weight, 1.0) for weight in weights
    ]
    sampled = class_balance("balanced", (), 3, LABELS[:90])  # of the third class there is none
    assert [[*row.values()] for row in sampled] == [[60, 1, 0.75], [30, 1, 1.5], [0, 1, 0]]
    assert describe_balance(sampled[:2], CLASSES[:2]) == (
        "images      bee 60 of weight 1, seen 0.75 times; cat with a space 30 of weight 1, seen "
        "1.5 times"
    )


def test_balanced_sampling_shows_classes_equally_often():
    def drawn(seed, epoch):
        return balanced_order(np.random.default_rng([seed, epoch]), LABELS)

    order = drawn(0, 3)
    assert sorted(np.bincount(LABELS[order]).tolist()) == [32, 32, 33]
    for label in range(3):
        times = np.bincount(order, minlength=97)[label == LABELS]
        assert np.ptp(times) <= 1
    assert (drawn(0, 3) == order).all()
    assert (drawn(0, 4) != order).any()
    assert (drawn(1, 3) != order).any()
