"""The pictures of the page, each with its words."""

import base64
import re

from resnet_fn.report.page import Pictures, gallery, mistakes

PNG, JPEG, RED = b"\x89PNG one", b"\xff\xd8 two", b"\x89PNG red"
MISTAKES = [
    {"index": 0, "name": "x&y.png", "label": "c0<", "prediction": "c1<", "confidence": 0.99},
    {"index": 1, "name": "z.jpg", "label": "c0<", "prediction": "c2<", "confidence": 0.5},
]


def sources(text):
    return [base64.b64decode(data) for data in re.findall(r'src="data:image/\w+;base64,([^"]*)"', text)]


def test_each_mistake_is_its_picture_and_its_evidence_with_its_words():
    """Text in the page, not in a picture: it stays legible at any width."""
    text = "\n".join(mistakes({"mistakes": MISTAKES}, Pictures([PNG, JPEG], [RED, RED])))
    found = re.findall(r"<figure>(.*?)</figure>", text)
    words = [re.sub("(<[^>]*>)+", "|", cell).strip("|") for cell in found]
    assert words == ["c0&lt; → c1&lt;| 99.00%|x&amp;y.png", "c0&lt; → c2&lt;| 50.00%|z.jpg"]
    assert [sources(cell) for cell in found] == [[PNG, RED], [JPEG, RED]]
    assert 'src="data:image/png;' in found[0]
    assert 'src="data:image/jpeg;' in found[1]
    assert mistakes({"mistakes": []}, Pictures()) == ["<h2>Mistakes</h2>", "<p>None.</p>"]


def test_the_evidence_beside_not_a_class_is_said_to_be_for_that_class():
    row = {"index": 0, "name": "x.png", "label": "cat;dog", "prediction": "not cat", "confidence": 0.75}
    words = "\n".join(mistakes({"mistakes": [row], "map": 0.5}, Pictures([PNG], [RED])))
    assert "<b>cat;dog → not cat</b> 75.00%" in words
    assert 'Beside "not X" it is the evidence for X, which was too little.' in words
    assert "not X" not in "\n".join(mistakes({"mistakes": MISTAKES}, Pictures([PNG, JPEG], [RED, RED])))


def test_the_gallery_goes_class_by_class_and_marks_what_is_wrong():
    samples = [
        {"index": 4, "name": "a.png", "prediction": "c<", "right": True, "probability": 0.9},
        {"index": 2, "name": "b.png", "prediction": "d", "right": False, "probability": None},
    ]
    report = {
        "classes": [{"support": 2}, {"support": 1}, {"support": 0}],
        "gallery": [{"class": "c<", "samples": samples}, {"class": "d", "samples": samples[:1]}],
    }
    text = "\n".join(gallery(report, Pictures(gallery=[PNG, RED, JPEG])))
    assert re.findall("<h3>(.*?)</h3>", text) == ["c&lt;", "d"]
    assert sources(text) == [PNG, RED, JPEG]
    assert "Of each class the images" in text
    assert text.count("<figure>") == 2
    (wrong,) = re.findall('<figure class="wrong">.*?<figcaption>(.*?)</figcaption>', text)
    assert wrong == "not finite <b>→ d</b>"
    report["classes"][2]["support"] = 1
    assert "Of the 2 classes with the lowest F1 the images" in gallery(report, Pictures(gallery=[PNG] * 3))[1]
