"""What stands on the page, in which order, and that it needs nothing else."""

import base64
import re

import pytest

from resnet_fn.report.page import page

PNG, JPEG = b"\x89PNG one", b"\xff\xd8 two"


def make_report(classes=3, **changes):
    """A report as `build_report` makes it: two samples of class 0, taken for 1 and 2; the other classes are right."""
    names = [f"c{index}<" for index in range(classes)]
    confusion = [[int(row == column) for column in range(classes)] for row in range(classes)]
    confusion[0][:3] = [0, 1, 1]
    scores = {"precision": 0.5, "recall": 0.25, "f1": 0.125}
    return {
        **{"loss": 0.7, "top1": 0.875, "top5": 0.9375, "count": classes + 1},
        "checkpoint": {
            **{"run": "a<b", "update": 3, "recipe": "mine", "model": "resnet8", "dataset": "digits"},
            "label_smoothing": 0.0,
        },
        "options": {"which": "last", "tta": "none", "ema": False, "image_size": 8},
        "averages": {"macro": scores, "weighted": scores},
        "classes": [{"name": name, **scores, "support": 1, "predicted": 1} for name in names],
        "calibration": {
            "error": 0.0625,
            "bins": [
                {"from": 0.0, "to": 0.5, "count": 0, "confidence": None, "accuracy": None},
                {"from": 0.5, "to": 1.0, "count": classes + 1, "confidence": 0.75, "accuracy": 0.6875},
            ],
        },
        "confusion": confusion,
        "confused": [{"label": names[0], "prediction": names[1], "count": 1}],
        "mistakes": [
            {"index": 0, "name": "x&y.png", "label": names[0], "prediction": names[1], "confidence": 0.99},
            {"index": 1, "name": "z.jpg", "label": names[0], "prediction": names[2], "confidence": 0.5},
        ],
        **changes,
    }


def sources(text):
    """The image files inside a page."""
    return [base64.b64decode(data) for data in re.findall(r'src="data:image/\w+;base64,([^"]*)"', text)]


def test_what_went_wrong_comes_before_calibration():
    text = page(make_report(), {}, [PNG, JPEG])
    assert re.findall("<h2>(.*?)</h2>", text) == [
        *("Confusion matrix", "Most often confused", "Classes", "Calibration", "The 2 most confident mistakes")
    ]


def test_the_page_needs_no_network_and_escapes_names():
    text = page(make_report(), {}, [PNG, JPEG])
    assert "run a&lt;b, update 3" in text
    assert "x&amp;y.png" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "url(" not in text
    assert not re.search(r"<(?![a-z/!])", text)


def test_each_mistake_is_its_picture_with_its_words():
    """Text in the page, not in a picture: it stays legible at any width."""
    text = page(make_report(), {}, [PNG, JPEG])
    found = re.findall(r"<figure>(.*?)</figure>", text)
    words = [re.sub("<[^>]*>", "|", cell).strip("|") for cell in found]
    assert words == ["c0&lt; → c1&lt;| 99.00%||x&amp;y.png", "c0&lt; → c2&lt;| 50.00%||z.jpg"]
    assert [sources(cell) for cell in found] == [[PNG], [JPEG]]
    assert 'src="data:image/png;' in found[0]
    assert 'src="data:image/jpeg;' in found[1]
    assert "<h2>Mistakes</h2>\n<p>None.</p>" in page(make_report(mistakes=[]), {}, [])


def test_tables_stand_for_plots_that_cannot_be_drawn():
    text = page(make_report(), {}, [PNG, JPEG])
    assert text.count("<table>") == 4  # confusion, confused pairs, classes, calibration
    assert "<td>0.50 to 1.00</td>" in re.sub(' class="text"| (?=>)', "", text)
    drawn = page(make_report(), {"confusion": b"\x89PNG c", "reliability": b"\x89PNG r"}, [PNG, JPEG])
    assert sources(drawn) == [b"\x89PNG c", b"\x89PNG r", PNG, JPEG]
    assert drawn.count("<table>") == 2


@pytest.mark.parametrize(("classes", "there"), [(5, False), (6, True)])
def test_top_5_is_told_where_there_are_more_than_five_classes(classes, there):
    text = page(make_report(classes), {}, [PNG, JPEG])
    assert ("<b>93.75%</b><span>top-5</span>" in text) == there
    assert "<b>87.50%</b><span>top-1</span>" in text


def test_label_smoothing_is_told_beside_the_calibration():
    report = make_report()
    assert "label smoothing" not in page(report, {}, [PNG, JPEG])
    report["checkpoint"]["label_smoothing"] = 0.1
    text = page(report, {"reliability": PNG}, [PNG, JPEG])
    assert "<h2>Calibration</h2>\n<p>Trained with label smoothing 0.1: " in text


def test_a_metric_that_is_not_finite_is_told():
    assert "<b>not finite</b><span>loss</span>" in page(make_report(loss=None), {}, [PNG, JPEG])
