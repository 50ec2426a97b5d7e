"""What the plots show, read back from matplotlib's own figures."""

import numpy as np
import pytest

from resnet_fn.report import plots

CALIBRATION = {
    "error": 0.125,
    "bins": [
        {"from": 0.0, "to": 0.5, "count": 3, "confidence": 0.45, "accuracy": 0.25},
        {"from": 0.5, "to": 0.75, "count": 0, "confidence": None, "accuracy": None},
        {"from": 0.75, "to": 1.0, "count": 9, "confidence": 0.95, "accuracy": 0.875},
    ],
}
CONFUSION = {"confusion": [[3, 1], [0, 4]], "classes": [{"name": "cat"}, {"name": r"$\dog$"}]}


def shown(text):
    """What matplotlib makes of a text, and whether as a formula."""
    return text._preprocess_math(text.get_text())


def test_the_reliability_diagram_names_all_that_it_draws():
    figure = plots.plot_reliability(CALIBRATION)
    upper, lower = figure.axes
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        *("accuracy", "mean confidence and accuracy", "perfectly calibrated")
    }
    dots, diagonal = upper.get_lines()
    assert list(zip(*dots.get_data(), strict=True)) == [(0.45, 0.25), (0.95, 0.875)]
    assert list(zip(*diagonal.get_data(), strict=True)) == [(0, 0), (1, 1)]
    assert [bar.get_height() for bar in upper.patches] == [0.25, 0.875]
    assert [bar.get_height() for bar in lower.patches] == [3, 9]
    assert upper.get_title() == "expected calibration error 0.1250"


def test_the_confusion_matrix_has_counts_on_the_shares_of_each_row():
    axes = plots.plot_confusion(CONFUSION).axes[0]
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), [[0.75, 0.25], [0, 1]])
    assert [(*text.get_position(), text.get_text()) for text in axes.texts] == [(0, 0, "3"), (1, 0, "1"), (1, 1, "4")]
    assert [shown(label) for label in axes.get_yticklabels()] == [("cat", False), (r"$\dog$", False)]


@pytest.mark.parametrize(("classes", "names", "numbers"), [(20, 20, 20), (21, 21, 0), (61, None, 0)])
def test_what_could_not_be_read_is_left_out(classes, names, numbers):
    report = {"confusion": np.eye(classes, dtype=int).tolist(), "classes": [{"name": "name"}] * classes}
    axes = plots.plot_confusion(report).axes[0]
    assert len(axes.texts) == numbers
    assert sum(label.get_text() == "name" for label in axes.get_xticklabels()) == (names or 0)


CURVES = {
    "classes": [{"name": "$cat$", "average_precision": 0.75}, {"name": "dog", "average_precision": None}],
    "curves": [{"recall": [0.5, 1.0], "precision": [1.0, 0.5]}, {"recall": [], "precision": []}],
    "mean_average_precision": 0.75,
}


def test_curves_begin_at_recall_0_and_have_names_up_to_ten():
    figure = plots.plot_curves(CURVES)
    (line,) = figure.axes[0].get_lines()
    assert list(zip(*line.get_data(), strict=True)) == [(0, 1), (0.5, 1), (1, 0.5)]
    assert line.get_drawstyle() == "steps-pre"  # the area under it is the average precision
    assert [shown(text) for text in figure.legends[0].get_texts()] == [("$cat$ 0.750", False)]
    assert figure.axes[0].get_title() == "mean average precision 0.7500"
    many = {**CURVES, "classes": CURVES["classes"][:1] * 11, "curves": CURVES["curves"][:1] * 11}
    assert (plots.plot_curves(many).legends, len(plots.plot_curves(many).axes[0].get_lines())) == ([], 11)


def test_all_are_drawn_as_the_same_bytes_twice():
    report = {**CONFUSION, "calibration": CALIBRATION, "curves": []}
    assert set(plots.draw_all(report)) == {"confusion", "reliability"}
    report |= CURVES
    drawn = plots.draw_all(report)
    assert set(drawn) == {"confusion", "reliability", "curves"}
    assert all(data.startswith(b"\x89PNG") for data in drawn.values())
    assert plots.draw_all(report) == drawn
