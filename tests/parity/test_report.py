"""The ladder as a table, as JSON and as a page."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.stage import Stage, not_in_task
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.show.json_file import write_json
from resnet_fn.parity.show.page import along_depth, ladder_page
from resnet_fn.parity.show.table import name_map, table
from resnet_fn.parity.trace.difference import difference
from resnet_fn.parity.trace.stages import (
    EVAL_FORWARD,
    GRADIENTS,
    INITIALISATION,
    INPUTS,
    LOSS,
    TRAJECTORY,
    WEIGHTS,
    ArrayId,
)

NAMES = NameMap(
    "execution order and shapes",
    {"conv.weight": whole_array("0.weight"), "a.b": whole_array("1.c")},
    {"conv": "0"},
    (),
)


def one(name, ours, theirs=1.0, **how):
    return difference(name, np.array([ours]), np.array([theirs]), **how)


def ladder(*, faulty):
    good = Stage(INPUTS, [one("images", 1.0)])
    skipped = not_in_task(INITIALISATION, "not asked for")
    wrong = Stage(EVAL_FORWARD, [one("logits", 2.0 if faulty else 1.0, tolerance=1e-5)])
    rounding = {"rounding": 5e-4 / (1 + 5e-4), "tolerance": 1e-4, "why": "measured rounding"}
    rounded = Stage(GRADIENTS, [one("a.b", 1 + 1e-3, **rounding), one("x", 1.0)])
    hints = ("pad_mode same pads 0/1, the reference 1/1",) if faulty else ()
    layer = LayerDifference("eval", "conv", "0", wrong.differences[0], None, hints)
    notes = [f"{norm}: eps 1 in the port, 2 in the reference" for norm in ("bn1", "bn2") if faulty]
    return Ladder([good, skipped, wrong, rounded], [layer], NAMES, notes, ties=0 if faulty else 7)


def json_of(ladder, *more):
    """What is written, which must be JSON: without NaN."""
    write_json(ladder, "ladder.json", *more)
    text = Path("ladder.json").read_text()
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_a_table_of_agreement_shows_stages_and_bounds():
    text = table(ladder(faulty=False))
    rows = [line.split() for line in text.splitlines()]
    head = "stage compared max abs relative cosine allowed rounding verdict"
    assert rows[0] == head.split()
    assert rows[1] == ["inputs", "1", "0.0e+00", "0.0e+00", "1.000000000", "0e+00", "ok"]
    assert rows[2] == ["initialisation", "0", "skipped:", "not", "asked", "for"]
    gradients = "gradients 2 1.0e-03 1.0e-03 1.000000000 1e-04 5.0e-04 rounding"
    assert rows[4] == f"{gradients} by measured rounding (a.b)".split()
    assert "float32 cannot say on which side of 0 7 inputs of a ReLU lie" in text
    assert text.endswith(
        "\n\nverdict: both compute the same; 1 of 4 arrays pass by a bound above 0.001 "
        "(1 measured rounding)"
    )


def test_a_table_of_a_fault_names_first_differences():
    lines = table(ladder(faulty=True)).splitlines()
    assert lines[-5:] == [
        "first layer that differs: conv (the reference's 0) in evaluation mode: 2 in the port, 1 in the "
        "reference at [0]",
        "  conv: pad_mode same pads 0/1, the reference 1/1",
        "first gradient that differs, going backward: none",
        "settings that differ:",
        "  bn1 and 1 more: eps 1 in the port, 2 in the reference",
    ]
    assert (
        "first stage that differs: eval forward, logits: 2 in the port, 1 in the reference at [0]"
        in lines
    )
    unpaired = Ladder([Stage(WEIGHTS, failed="head.weight has no counterpart")], [], NAMES, [])
    assert "first stage that differs: weights\n  head.weight has no counterpart\n" in table(
        unpaired
    )


def test_undecided_is_never_the_same():
    doubtful = ladder(faulty=False)
    doubtful.stages[2] = Stage(EVAL_FORWARD, [one("logits", 0.0, rounding=2 / 3, tolerance=1e-5)])
    doubtful.stages.append(
        Stage(LOSS, [one("loss", 1.0)], undecided="the net drops 0.2 of x in training")
    )
    assert (doubtful.agrees, doubtful.first_stage) == (False, None)
    assert table(doubtful).endswith(
        "\nverdict: undecided; no stage differs beyond rounding, but these cannot be decided:\n"
        "  eval forward: logits: a relative rounding error of 0.67 in the reference is too large to "
        "compare\n  loss: the net drops 0.2 of x in training"
    )
    read = json_of(doubtful, "inputs: compared by <b>")
    assert (read["version"], read["agrees"]) == (4, False)
    assert read["undecided"] == ["eval forward", "loss"]
    assert read["inputs"] == "inputs: compared by <b>"
    assert "<p>inputs: compared by &lt;b&gt;</p>" in ladder_page(doubtful, "x", read["inputs"])
    assert read["stages"][-1]["note"] == "the net drops 0.2 of x in training"


def test_what_was_not_compared_does_not_agree():
    short = ladder(faulty=True)
    good = [dataclasses.replace(short.layers[0], output=one("conv", 1.0), hints=())]
    short = dataclasses.replace(short, ran={"eval": 1, "train": 2})
    short.stages.pop()  # without gradients
    for layers, words in (
        (good, "none; the outputs of layers agree, 1 of 1 in evaluation mode, 0 of 2"),
        ([], "not compared"),
    ):
        text = table(dataclasses.replace(short, layers=layers))
        assert f"\nfirst layer that differs: {words}" in text
        assert "\nfirst gradient that differs, going backward: not compared\n" in text


def test_names_are_listed_unless_names_alone_decided():
    assert name_map(ladder(faulty=False)).splitlines() == [
        "names: 2 parameters and statistics paired by execution order and shapes; the port's, the "
        "reference's:",
        "  conv.weight  0.weight",
        "  a.b          1.c",
    ]
    by_name = Ladder([], [], NameMap("names", {"a": whole_array("a")}, {}, ()), [])
    assert name_map(by_name) == "names: 1 parameters and statistics paired by name"


def test_json_holds_everything_with_null_for_nan():
    wrong = ladder(faulty=True)
    wrong.stages[2].differences.append(one("logits", math.nan))
    with pytest.raises(ValueError, match=r"^/dev/full: cannot be written \(No space left"):
        write_json(wrong, "/dev/full")
    read = json_of(wrong)
    first = read["first_stage"], read["first_layer"]
    assert (read["agrees"], *first) == (False, "eval forward", "conv")
    assert read["names"]["parameters"] == {"conv.weight": "0.weight", "a.b": "1.c"}
    forward = read["stages"][2]["differences"]
    assert [item["port"] for item in forward] == [2.0, None]
    assert [item["relative"] for item in forward] == [1.0, None]
    assert read["layers"][0]["hints"] == ["pad_mode same pads 0/1, the reference 1/1"]
    assert read["layers"][0]["input"] is None


def test_a_page_shows_differences_with_their_causes():
    wrong = ladder(faulty=True)
    wrong.layers.append(dataclasses.replace(wrong.layers[0], mode="train", output=one("conv", 1.0)))
    wrong.stages[3].differences.append(one("conv.<w>", 3.0))
    wrong.stages.append(
        Stage(
            TRAJECTORY,
            [one(ArrayId(update=1), 2.5, 2.5), one(ArrayId(update=2), 2.25, 2.125)],
            "without update 3 on: chaos",
        )
    )
    text = ladder_page(wrong, "ours against theirs")
    order = (
        "They differ",
        "conv: pad_mode same pads 0/1, the reference 1/1",
        "skipped: not asked for",
        "bn1 and 1 more: eps 1 in the port",
    )
    assert sorted(order, key=text.index) == list(order)
    assert "<w>" not in text
    assert "2.125" in text
    assert "without update 3 on: chaos" in text
    assert "<footer>Not compared: the choice and augmentation of samples" in text
    assert text.count("ot compared: the choice") == 1
    depth = along_depth(wrong)
    assert [*depth] == ["conv", "a.b", "x"]
    assert [item.name for item in depth["conv"].values()] == ["logits", "conv", "conv.<w>"]
    assert text.count('class="bar"') == 5
    assert (
        f"--colour: #c62828; --error: {100 * 8 / 11:.2f}%; --allowed: {100 * 3 / 11:.2f}%" in text
    )


def test_a_narrow_page_names_each_number_beside_it():
    """Narrower than 600 pixels, the table of eight columns is a few lines for each stage, without
    its head.
    """
    text = ladder_page(ladder(faulty=True), "x")
    style, body = text.split("</style>")
    header = re.findall(
        r"<th[^>]*>(.*?)</th>", body.partition('class="stages"')[2].split("</thead>")[0]
    )
    labels = dict(
        re.findall(
            r'\.stages td:nth-child\((\d)\)::before { content: "(.*?) "; }',
            style.split("@media")[-1],
        )
    )
    assert {int(place): name for place, name in labels.items()} == dict(enumerate(header[2:], 3))
    assert style.count("{") == style.count("}")


def test_a_page_has_no_empty_layer_columns():
    text = ladder_page(ladder(faulty=True), "x")
    assert "output, with dropout" not in text
    assert "output, evaluation mode" in text


def test_a_page_shows_narrow_and_nonfinite_differences():
    wrong = ladder(faulty=True)
    barely = one("conv", 1 + 1.01e-5, tolerance=1e-5)
    nothing = one("conv", math.nan, math.nan, tolerance=1e-5)
    wrong.layers[:] = [
        dataclasses.replace(wrong.layers[0], output=output, mode=mode)
        for output, mode in ((barely, "eval"), (nothing, "train"))
    ]
    wrong.stages.append(
        Stage(LOSS, [one("loss", 1.0)], hints=["a cause"], failed="a count differs")
    )
    text = ladder_page(wrong, "x")
    (error, allowed), none = [
        re.findall(r"--(?:error|allowed): ([\d.]+)%", bar) for bar in text.split('class="bar"')[1:3]
    ]
    assert float(error) > float(allowed)
    assert none == ["0.00", allowed]
    assert "a count differs" in text
    unpaired = Ladder([Stage(WEIGHTS, failed="a <b> is alone")], [], NAMES, [])
    assert "a &lt;b&gt; is alone" in ladder_page(unpaired, "x")
