"""Arrays without a counterpart: the entries for --map that fit, ready to be copied."""

import json

from resnet_fn.parity.pair.map_file import made_of
from resnet_fn.parity.pair.matching import Outline, match

HEAD = {"head.weight": (3, 4), "head.bias": (3,)}


def suggested(port, reference):
    """The entries that are suggested beside equal heads, and the other lines."""
    names = match(Outline(port | HEAD), Outline(reference | HEAD))
    assert names.problems
    entries = {}
    for line in names.advice:
        if line.startswith("{"):
            entries = json.loads(line)
    return entries, [line for line in names.advice if not line.startswith("{")]


def pair_with(entries, port, reference):
    corrections = {name: made_of(entry) for name, entry in entries.items()}
    return not match(Outline(port | HEAD), Outline(reference | HEAD), corrections).problems


def test_rows_of_joint_arrays_are_suggested_for_parts():
    port = {f"attn.{part}.weight": (4, 4) for part in ("alpha", "beta", "delta")}
    reference = {"attn.joint.weight": (12, 4, 1, 1)}
    entries, (first, *_) = suggested(port, reference)
    assert entries == {
        f"attn.{part}.weight": {"from": "attn.joint.weight", "rows": rows}
        for part, rows in (("alpha", [0, 4]), ("beta", [4, 8]), ("delta", [8, 12]))
    }
    assert "--map" in first
    assert "all arrays" in first
    assert pair_with(entries, port, reference)


def test_q_k_v_are_cut_in_order():
    port = {f"a.to_{part}.weight": (4, 4) for part in "vqk"}
    entries, _ = suggested(port, {"a.mixed.weight": (12, 4)})
    assert {name: entry["rows"] for name, entry in entries.items()} == {
        "a.to_q.weight": [0, 4],
        "a.to_k.weight": [4, 8],
        "a.to_v.weight": [8, 12],
    }


def test_parts_that_add_up_are_joined():
    port = {"attn.all.weight": (8, 4), "attn.all.bias": (8,)}
    reference = {"attn.first.weight": (6, 4), "attn.first.bias": (6,)}
    reference |= {"attn.second.weight": (2, 4), "attn.second.bias": (2,)}
    entries, _ = suggested(port, reference)
    assert entries == {
        f"attn.all.{leaf}": {"from": [f"attn.first.{leaf}", f"attn.second.{leaf}"]}
        for leaf in ("weight", "bias")
    }
    assert pair_with(entries, port, reference)


def test_parts_not_adding_up_are_not_joined():
    port = {"attn.all.weight": (9, 4)}
    entries, lines = suggested(port, {"attn.first.weight": (6, 4), "attn.second.weight": (2, 4)})
    assert entries == {"attn.all.weight": None}
    assert any("attn.first.weight" in line for line in lines)


def test_null_is_suggested_for_a_constant():
    entries, (line,) = suggested({"strides": (3,)}, {})
    assert entries == {"strides": None}
    assert "null" in line
    assert pair_with(entries, {"strides": (3,)}, {})


def test_all_arrays_of_one_shape_are_named():
    entries, lines = suggested({"x.scale": (5,)}, {"y.gain": (5,), "z.gain": (5,)})
    assert entries == {"x.scale": "y.gain"}
    assert any("y.gain, z.gain" in line for line in lines)
    assert any("no array that fits" in line and "z.gain" in line for line in lines)


def test_arrays_in_attributes_of_ports_are_named():
    """As of a frozen norm whose statistics are Tensors, not Parameters."""
    reference = {"norm.weight": (5,), "norm.running_mean": (5,), "norm.other": (5,)} | HEAD
    attributes = {"norm.gamma": (5,), "norm.moving_mean": (5,), "norm.other": (6,)}
    names = match(Outline(HEAD, attributes=attributes), Outline(reference))
    trained, statistics, other = names.advice
    assert trained.startswith("the port has norm.weight in attributes that are no Parameters")
    assert trained.endswith("; make them Parameters")
    assert statistics.startswith("the port has norm.running_mean in attributes")
    assert statistics.endswith("; make them Parameters with requires_grad=False")
    assert other == "the port has no array that fits the reference's norm.other"


def test_unused_layers_of_references_may_be_removed():
    """As BERT's pooler, which a port of a classifier on tokens lacks."""
    pooler = {"bert.pooler.dense.weight": (4, 4), "bert.pooler.dense.bias": (4,)}
    rest = {"bert.layers.0.weight": (4, 4), "bert.layers.1.weight": (4, 4)}
    kept = HEAD | {"bert.layers.0.weight": (4, 4)}
    (line,) = match(Outline(kept), Outline(kept | pooler | rest)).advice
    assert "no array that fits the reference's bert.pooler.dense.weight, bert.pooler" in line
    assert line.endswith(
        "; if the reference does not use them, build it without them: model.bert.pooler = None, "
        "model.bert.layers[1] = None"
    )
    # of a layer that the port has in part, or where the port's arrays are unpaired, too, no word
    (line,) = match(Outline(kept), Outline(kept | {"bert.layers.0.bias": (4,)})).advice
    assert line.endswith("the reference's bert.layers.0.bias")
    tied = {"wte.weight": (9, 4)}, {"wte.weight": (9, 4), "top.weight": (9, 4), "top.bias": (9,)}
    names = [("wte.weight", "top.weight")]
    (line,) = match(Outline(HEAD | tied[0]), Outline(HEAD | tied[1], tied=names)).advice
    assert line.endswith("the reference's top.bias")
    lines = match(Outline(HEAD | {"pool": (9,)}), Outline(HEAD | pooler)).advice
    assert "build it without" not in str(lines)


def test_nothing_is_suggested_where_all_arrays_fit():
    assert match(Outline(HEAD), Outline(HEAD)).advice == ()
