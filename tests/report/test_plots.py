"""The curves and diagrams of a report."""

from matplotlib.text import Text

from resnet_fn.report import plots

CALIBRATION = {
    "error": 0.125,
    "bins": [
        {"from": 0.0, "to": 0.5, "count": 3, "confidence": 0.45, "accuracy": 0.25},
        {"from": 0.5, "to": 0.75, "count": 0, "confidence": None, "accuracy": None},
        {"from": 0.75, "to": 1.0, "count": 9, "confidence": 0.95, "accuracy": 0.875},
    ],
}


def test_the_reliability_diagram_names_all_that_it_draws():
    figure = plots.plot_reliability(CALIBRATION)
    upper, lower = figure.axes
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "accuracy",
        "mean confidence and accuracy",
        "perfectly calibrated",
    }
    dots, diagonal = upper.get_lines()
    assert list(zip(*dots.get_data(), strict=True)) == [(0.45, 0.25), (0.95, 0.875)]
    assert list(zip(*diagonal.get_data(), strict=True)) == [(0, 0), (1, 1)]
    assert [bar.get_height() for bar in upper.patches] == [0.25, 0.875]
    assert [bar.get_height() for bar in lower.patches] == [3, 9]
    assert upper.get_title() == "expected calibration error 0.1250"
    figure.canvas.draw()
    assert [text.get_text() for text in lower.get_yticklabels()][-2:] == ["1", "10"]


CURVES = {
    "classes": [
        {"name": "$cat$", "average_precision": 0.75},
        {"name": "dog", "average_precision": None},
    ],
    "curves": [{"recall": [0.5, 1.0], "precision": [1.0, 0.5]}, {"recall": [], "precision": []}],
    "mean_average_precision": 0.75,
}


def test_curves_begin_at_recall_0():
    figure = plots.plot_curves(CURVES)
    (line,) = figure.axes[0].get_lines()
    assert list(zip(*line.get_data(), strict=True)) == [(0, 1), (0.5, 1), (1, 0.5)]
    assert line.get_drawstyle() == "steps-pre"  # the area under it is the average precision
    assert plots.colours_of_curves(CURVES) == [(CURVES["classes"][0], line.get_color())]
    assert figure.axes[0].get_title() == "mean average precision 0.7500"
    many = {**CURVES, "classes": CURVES["classes"][:1] * 11, "curves": CURVES["curves"][:1] * 11}
    lines = plots.plot_curves(many).axes[0].get_lines()
    assert (len(lines), len({line.get_color() for line in lines})) == (11, 1)
    assert plots.colours_of_curves(many) == []


def test_names_of_classes_are_in_no_picture():
    """matplotlib's font would draw boxes for Chinese letters, and warn: here warnings are
    errors.
    """
    names = ["猫", "собака", "سگ", "$x$"]
    report = {**CURVES, "classes": [{"name": name, "average_precision": 0.5} for name in names]}
    report |= {"curves": CURVES["curves"][:1] * 4, "calibration": CALIBRATION}
    assert set(plots.draw_all(report)) == {"curves", "reliability"}
    texts = "".join(text.get_text() for text in plots.plot_curves(report).findobj(Text))
    assert not any(name in texts for name in names)
    assert [row["name"] for row, _ in plots.colours_of_curves(report)] == names
