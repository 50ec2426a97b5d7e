from resnet_fn.doctor.findings import Check, Finding, find, line, on_all_ranks
from resnet_fn.runtime.workers import Workers


def test_what_raises_is_broken():
    def raises():
        raise OSError("no such kernel\nand more")

    found = find(Check("name", raises, "meaning"))
    assert found == Finding("name", False, "OSError: no such kernel", "meaning")
    assert on_all_ranks([found], Workers()) == [found]


def test_a_finding_is_two_lines():
    lines = {ok: line(Finding("clip", ok, "found", "meaning")) for ok in (True, False)}
    assert lines[True] == f"ok      clip         found\n{'':20} meaning"
    assert lines[False].startswith("BROKEN  clip  ")
