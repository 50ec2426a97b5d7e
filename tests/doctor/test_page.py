from resnet_fn.doctor.machine import describe
from resnet_fn.doctor.page import page, summary
from resnet_fn.runtime.workers import Workers


def check(name, ok, found):
    texts = {"found": found, "judged": "within 1e-5", "means": "all is well"}
    return {"name": name, "ok": ok, **texts, "seconds": 3.4, "numbers": {}, "commands": ["python -m resnet_fn.train"]}


def result(*checks):
    return {
        "machine": describe("CPU", 2, Workers()),
        "checks": checks,
        "broken": [item["name"] for item in checks if item["ok"] is False],
        "not_tried": [item["name"] for item in checks if item["ok"] is None],
        "seconds": 12.3,
    }


def test_the_summary_names_what_is_not_ok():
    assert summary(result(check("a", True, ""))) == "1 of 1 ok, in 12 s"
    mixed = result(check("a", True, ""), check("b", False, ""), check("c", None, ""), check("d", None, ""))
    assert summary(mixed) == "1 of 4 ok, in 12 s; BROKEN: b; not tried: c, d"


def test_the_page_says_of_each_check_what_was_found_and_by_which_bound():
    text = page(result(check("ladder", False, "stage | loss"), check("speed", None, "no card")))
    assert "1 of" not in text.splitlines()[0]
    assert text.splitlines()[2] == "0 of 2 ok, in 12 s; BROKEN: ladder; not tried: speed"
    assert "| ladder | BROKEN | stage \\| loss | 3 |" in text
    assert "| speed | not tried | no card | 3 |" in text
    assert "### ladder: BROKEN\n\nMeans: all is well.\nJudged: within 1e-5.\nOutput: logs/ladder.log, of\n" in text
    assert "device     CPU, 2 threads on " in text
