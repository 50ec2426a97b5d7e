"""The page of a report: figures, tables, escaped texts."""

import base64
import re

from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.report.page import Pictures, gallery, mistakes, page

PNG = b"\x89PNG one"
JPEG = b"\xff\xd8 two"
RED = b"\x89PNG red"
PICTURES = Pictures([PNG, JPEG], [RED, RED])


def make_report(**changes):
    """A report as `build_report` makes it: two samples of class 0, taken for 1 and 2; the other
    classes are right.
    """
    names = ["c0<", "c1<", "c2<"]
    scores = {"precision": 0.5, "recall": 0.25, "f1": 0.125}
    return {
        "loss": 0.7,
        "top1": 0.875,
        "top5": 0.9375,
        "count": 4,
        "checkpoint": {
            "run": "a<b",
            "update": 3,
            "model": "resnet8",
            "dataset": "digits",
            "label_smoothing": 0.0,
            "date": "2026-11-23",
        },
        "data": {"folder": "/sets/d<", "training_images": 1437, "validates": True},
        "recipe": to_dict(Recipe(name="mine", epochs=9, batch_size=32, learning_rate=0.1, seed=7)),
        "options": {"which": "last", "tta": "none", "ema": False, "image_size": 8},
        "averages": {"macro": scores, "weighted": scores},
        "classes": [
            {"name": name, **scores, "support": 1, "average_precision": 0.375} for name in names
        ],
        "mean_average_precision": 0.375,
        "curves": [],
        "gallery": [],
        "calibration": {
            "error": 0.0625,
            "bins": [
                {"from": 0.0, "to": 0.5, "count": 0, "confidence": None, "accuracy": None},
                {"from": 0.5, "to": 1.0, "count": 4, "confidence": 0.75, "accuracy": 0.6875},
            ],
        },
        "confusion": [[0, 1, 1], [0, 1, 0], [0, 0, 1]],
        "confused": [{"label": names[0], "prediction": names[1], "count": 1}],
        "mistakes": [
            {"name": name, "label": names[0], "prediction": names[n], "confidence": confidence}
            for n, name, confidence in ((1, "x&y.png", 0.99), (2, "z.jpg", 0.5))
        ],
        **changes,
    }


def sources(text):
    """The image files inside a page."""
    return [
        base64.b64decode(data) for data in re.findall(r'src="data:image/\w+;base64,([^"]*)"', text)
    ]


def test_the_page_is_self_contained_and_escapes_names():
    text = page(make_report(), {}, PICTURES)
    assert re.findall("<h2>(.*?)</h2>", text) == [
        "Confusion matrix",
        "Most often confused",
        "Classes",
        "Calibration",
        "The 2 most confident mistakes",
        "Class by class",
    ]
    assert "run a&lt;b, update 3, 2026-11-23" in text
    assert "<b>data</b>: digits: 1,437 training images, 3 classes; /sets/d&lt;<br>" in text
    assert "mine: 9 epochs, batch size 32, sgd, learning rate 0.1, seed 7" in text
    assert "x&amp;y.png" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "url(" not in text
    assert not re.search(r"<(?![a-z/!])", text)


def test_tables_stand_for_plots_that_cannot_be_drawn():
    text = page(make_report(), {}, PICTURES)
    assert text.count("<table") == 5  # settings, confusion, confused pairs, classes, calibration
    assert "<td>0.50 to 1.00</td>" in text.replace(' class="text"', "")
    curves = [PNG + b"1", PNG + b"2", PNG + b"3"]
    drawn = page(make_report(), {"reliability": RED}, PICTURES._replace(curves=curves))
    assert sources(drawn) == [*curves, RED, PNG, RED, JPEG, RED]
    assert drawn.count("<table") == 4


def test_average_precision_is_told_where_it_is_known():
    told = page(make_report(), {"curves": b"\x89PNG k"}, PICTURES)
    assert "<b>0.3750</b><span>mean average precision</span>" in told
    assert "average precision</th>" in told
    assert b"\x89PNG k" in sources(told)
    assert "<h2>Precision and recall</h2>" in told
    report = make_report(mean_average_precision=None)
    for row in report["classes"]:
        row["average_precision"] = None
    assert "average precision" not in page(report, {}, PICTURES)


def test_the_names_of_curves_stand_below_the_picture():
    """In the page's text, whose fonts the reader's browser has, and escaped."""
    report = make_report(curves=[{"recall": [1.0], "precision": [1.0]}] * 3)
    report["classes"][0]["name"] = "猫<"
    text = page(report, {"curves": b"\x89PNG k"}, PICTURES)
    legend = re.search('<ul class="legend">(.*?)</ul>', text)[1]
    assert re.findall("<li[^>]*>(.*?)</li>", legend) == [
        "<bdi>猫&lt;</bdi> 0.375",
        "<bdi>c1&lt;</bdi> 0.375",
        "<bdi>c2&lt;</bdi> 0.375",
    ]
    assert len(set(re.findall("--colour: (#[0-9a-f]{6})", legend))) == 3


def test_multi_label_pages_leave_out_single_label_parts():
    report = make_report(calibration=None, confusion=None, confused=[], map=0.375)
    del report["top1"], report["top5"]
    text = page(report, {}, PICTURES)
    assert "The net predicts each class whose probability is 0.5 or more." in text
    titles = re.findall("<h2>(.*?)</h2>", text)
    assert titles == ["Classes", "The 2 most confident mistakes", "Class by class"]
    figures = re.findall("<span>(.*?)</span></div>", text)
    assert figures == ["loss", "macro F1", "mean average precision", "validation images"]


def test_each_mistake_has_picture_and_evidence():
    text = "\n".join(mistakes(make_report(), PICTURES))
    found = re.findall(r"<figure>(.*?)</figure>", text)
    words = [re.sub("(<[^>]*>)+", "|", cell).strip("|") for cell in found]
    assert words == ["c0&lt; → c1&lt;| 99.00%|x&amp;y.png", "c0&lt; → c2&lt;| 50.00%|z.jpg"]
    assert [sources(cell) for cell in found] == [[PNG, RED], [JPEG, RED]]
    assert 'src="data:image/png;' in found[0]
    assert 'src="data:image/jpeg;' in found[1]
    assert mistakes({"mistakes": []}, Pictures()) == ["<h2>Mistakes</h2>", "<p>None.</p>"]


def test_evidence_beside_a_missed_class_names_that_class():
    row = {"name": "x.png", "label": "cat;dog", "prediction": "not cat", "confidence": 0.75}
    words = "\n".join(mistakes({"mistakes": [row], "map": 0.5}, Pictures([PNG], [RED])))
    assert "<b>cat;dog → not cat</b> 75.00%" in words
    assert 'If the prediction is "not X", red shows the evidence for X.' in words
    row |= {"label": "", "prediction": "cat"}
    words = "\n".join(mistakes({"mistakes": [row]}, Pictures([PNG], [RED])))
    assert "<b>no class → cat</b>" in words
    assert "not X" not in "\n".join(mistakes(make_report(), PICTURES))


def test_the_gallery_marks_mistakes_class_by_class():
    samples = [
        {"name": "a.png", "prediction": "c<", "right": True, "probability": 0.9},
        {"name": "b.png", "prediction": "d", "right": False, "probability": None},
    ]
    report = {
        "classes": [{"support": 2}, {"support": 1}, {"support": 0}],
        "gallery": [{"class": "c<", "samples": samples}, {"class": "d", "samples": samples[:1]}],
    }
    pictures = Pictures(gallery=[PNG, RED, JPEG])
    text = "\n".join(gallery(report, pictures))
    assert re.findall("<h3>(.*?)</h3>", text) == ["c&lt;", "d"]
    assert sources(text) == [PNG, RED, JPEG]
    assert "For each class, the first images" in text
    assert text.count("<figure>") == 2
    (wrong,) = re.findall('<figure class="wrong">.*?<figcaption>(.*?)</figcaption>', text)
    assert wrong == "not finite <b>→ d</b><br><span>b.png</span>"
    samples[1]["prediction"] = ""  # several classes an image, and none is said
    assert "not finite <b>→ no class</b>" in "\n".join(gallery(report, pictures))
    report["classes"][2]["support"] = 1
    assert "For the 2 classes with the lowest F1, the first images" in gallery(report, pictures)[1]
