"""What a net's array is made of, and how --map corrects it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.pair.matching import Outline, match
from resnet_fn.parity.pair.name_map import GRADIENT_KIND, MadeOf, NameMap, Part, joined, whole_array

FUSED = np.arange(24.0).reshape(6, 4)
THIRDS = [Part("fused", share=(index, 3)) for index in range(3)]
ARRAYS = {"fused": FUSED, "bias": np.arange(6.0), "number": np.float64(3.0)}


@pytest.mark.parametrize(
    ("source", "expected", "words"),
    [
        (whole_array("number"), np.float64(3.0), "number"),
        (joined(THIRDS), FUSED, "fused"),
        (
            joined([THIRDS[1], THIRDS[0]]),
            FUSED[[2, 3, 0, 1]],
            "fused [part 2 of 3] + fused [part 1 of 3]",
        ),
        (MadeOf((Part("fused", rows=(1, 3), axis=1),)), FUSED[:, 1:3], "fused [1:3] of axis 1"),
        (
            MadeOf((Part("fused", (1, 0), rows=(1, 3)),)),
            FUSED.T[1:3],
            "fused transposed [1, 0] [1:3]",
        ),
    ],
)
def test_a_source_is_what_numpy_says(source, expected, words):
    np.testing.assert_array_equal(source.build(ARRAYS.get), expected)
    assert str(source) == words


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        (
            Part("fused", (0, 1, 2)),
            None,
            "transpose [0, 1, 2] must list each axis of fused [6, 4] once",
        ),
        (
            Part("fused", rows=(4, 9)),
            None,
            "rows [4, 9] must ascend and lie in 0..6 (axis 0 of fused)",
        ),
        (Part("bias", rows=(0, 1), axis=1), None, "axis 1 does not exist in bias [6]"),
        (Part("fused"), (5,), "fused [6, 4] cannot be reshaped to [5]"),
    ],
)
def test_sources_that_do_not_fit_are_errors(part, shape, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MadeOf((part,), shape=shape).build(ARRAYS.get)


def test_a_map_finds_shared_arrays_by_either_name():
    sources = {"q": joined([THIRDS[0]]), "head": whole_array("out"), "lost": whole_array("nowhere")}
    names = NameMap("names", sources, {}, (), tied=(("bias", "out"),))
    found = names.rename(ARRAYS)
    assert list(found) == ["q", "head"]
    np.testing.assert_array_equal(found["head"], ARRAYS["bias"])
    assert names.sources("head") == ("bias",)
    assert names.sources("loss") == ("loss",)


OURS = {
    "a.weight": (4, 4),
    "a.bias": (4,),
    "q.weight": (2, 4),
    "both.weight": (4, 8),
    "table": (8, 1),
}
THEIRS = {
    "b.weight": (4, 4),
    "b.bias": (4,),
    "fused": (6, 4),
    "one": (4, 4),
    "two": (4, 4),
    "row": (8,),
}
CORRECTIONS = {
    "a.weight": {"from": "b.weight", "transpose": [1, 0]},
    "a.bias": "b.bias",
    "q.weight": {"from": "fused", "rows": [2, 4]},
    "both.weight": {"from": ["one", {"name": "two", "transpose": [1, 0]}], "join": 1},
    "table": {"from": "row", "shape": [8, 1]},
}


def read(entries):
    Path("names.json").write_text(json.dumps(entries))
    return read_map("names.json")


def test_every_kind_of_map_entry_is_applied():
    names = match(Outline(OURS), Outline(THEIRS), read(CORRECTIONS))
    assert names.problems == ()
    words = "b.weight transposed [1, 0]; b.bias; fused [2:4]; one + two transposed [1, 0]; "
    assert "; ".join(map(str, names.parameters.values())) == f"{words}row as [8, 1]"
    theirs = {name: np.random.normal(size=shape) for name, shape in THEIRS.items()}
    expected = {
        "a.weight": theirs["b.weight"].T,
        "a.bias": theirs["b.bias"],
        "q.weight": theirs["fused"][2:4],
        "both.weight": np.hstack([theirs["one"], theirs["two"].T]),
        "table": theirs["row"][:, None],
    }
    np.testing.assert_equal(names.rename(theirs), expected)


@pytest.mark.parametrize(
    ("entry", "expected", "words"),
    [
        ("a + b", [5, 2], "the sum of a, b"),
        ("a - b", [-3, 6], "the sum of a, -b"),
        ("- a + b", [3, -6], "the sum of -a, b"),
        ("-a", [-1, -4], "-a"),
        ({"from": "-a - b", "shape": [2, 1]}, [[-5], [-2]], "the sum of -a, -b as [2, 1]"),
    ],
)
def test_sums_and_signs_apply_to_values_and_gradients(entry, expected, words):
    """The gradient of a sum is that of each part."""
    theirs = {name: (2,) for name in "ab" if name in str(entry)}
    names = match(Outline({"x": np.shape(expected)}), Outline(theirs), read({"x": entry}))
    source = names.parameters["x"]
    assert (str(source), names.problems) == (words, ())
    values = {"a": np.float32([1, 4]), "b": np.float32([4, -2])}
    np.testing.assert_array_equal(names.rename(values)["x"], expected)
    # of the sum; so of a part, with its sign
    gradient = np.float32([3, -5]).reshape(np.shape(expected))
    of_parts = {part.name: part.sign * np.ravel(gradient) for part in source.parts}
    np.testing.assert_array_equal(names.rename(of_parts, GRADIENT_KIND)["x"], gradient)


@pytest.mark.parametrize("text", ["a +", "+", "", "a b", "a + + b", "a * b", "a +b"])
def test_a_malformed_sum_names_line_and_fix(text, raises_line):
    Path("names.json").write_text(f'{{\n  "first": "a",\n  "x.bias": {json.dumps(text)}\n}}')
    with raises_line("--map: names.json line 3: x.bias: ", f'"{text}"', '; write "b_ih + b_hh"'):
        read_map("names.json")


def test_a_layer_stands_for_all_that_it_holds():
    ours = {**dict.fromkeys(["bn.gamma", "bn.beta", "bn.moving_mean"], (4,)), "fc.weight": (4, 4)}
    theirs = dict.fromkeys(["norm.weight", "norm.bias", "norm.running_mean"], (4,))
    theirs["fc.weight"] = (4, 4)
    names = match(Outline(ours), Outline(theirs), read({"bn": "norm"}))
    assert (names.how, names.problems, names.layers) == ("names", (), {"bn": "norm"})
    assert {name: str(source) for name, source in names.parameters.items()} == {
        "bn.gamma": "norm.weight",
        "bn.beta": "norm.bias",
        "bn.moving_mean": "norm.running_mean",
        "fc.weight": "fc.weight",
    }


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], ("--map: names.json must hold an object", "but it holds list")),
        ({"a.weight": 3}, ('a.weight: an entry must be a name in the reference, {"from": names',)),
        (
            {"a.weight": {"from": "b.weight", "transposed": [1, 0]}},
            ("a.weight: the key 'transposed'", "mean transpose?"),
        ),
        (
            {"a.weight": {"from": "b.weight", "rows": [0]}},
            ("a.weight: rows must be a list of 2 whole numbers", "[0]"),
        ),
        (
            {"a.weigth": "b.weight"},
            ("--map:", "'a.weigth' is not a parameter or a layer", "did you mean a.weight or"),
        ),
        (
            {"a.weight": "b.weigth"},
            ("--map:", "the reference has no array 'b.weigth'", "did you mean b.weight?"),
        ),
        ({"a": "c"}, ("--map:", "a: the reference has no layer 'c'", "use one of b")),
    ],
)
def test_map_entries_without_a_meaning_are_rejected(entries, words, raises_line):
    with raises_line(*words):
        match(Outline(OURS), Outline(THEIRS), read(entries))


def test_a_missing_or_invalid_map_is_rejected(raises_line):
    with raises_line("--map: nowhere.json cannot be read (No such file or directory); "):
        read_map("nowhere.json")
    Path("names.json").write_text("{")
    with raises_line("--map: names.json is not valid JSON (Expecting property name"):
        read_map("names.json")


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        (
            "q.weight",
            {"from": "fused", "rows": [0, 3]},
            ("q.weight is (2, 4) in the port, (3, 4) in the reference",),
        ),
        (
            "q.weight",
            {"from": "fused", "rows": [5, 9]},
            ("--map: q.weight: rows [5, 9] must ascend and lie in 0..6",),
        ),
        ("a.bias", "b.bias + row", ("--map: a.bias: ", "shape")),
    ],
)
def test_parts_of_a_wrong_shape_are_named(name, entry, words, says):
    (problem,) = match(Outline(OURS), Outline(THEIRS), read({**CORRECTIONS, name: entry})).problems
    says(problem, *words)
