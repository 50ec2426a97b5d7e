"""What is trained and what is shared, in one net and not in the other."""

import numpy as np

from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.matching.roles import padding_notes, sharing_notes, training_notes
from resnet_fn.parity.matching.source import plain
from resnet_fn.parity.traces.layer import Layer

NAMES = NameMap(
    "names",
    {
        "embed.embedding_table": plain("embed.weight"),
        "head.weight": plain("head.weight"),
        "bn.gamma": plain("bn.weight"),
    },
    {},
    (),
    tied=(("embed.weight", "head.weight"),),
)


def test_copies_of_what_the_reference_shares_are_told():
    assert sharing_notes(NAMES, []) == [
        "embed.embedding_table: a copy of head.weight here, one array in the reference (embed.weight = head.weight); "
        "share it"
    ]
    assert sharing_notes(NAMES, [("embed.embedding_table", "head.weight")]) == []


def test_what_is_frozen_in_one_net_only_is_told():
    both = ["embed.embedding_table", "head.weight", "bn.gamma"], ["embed.weight", "head.weight", "bn.weight"]
    assert training_notes(NAMES, *both) == []
    assert training_notes(NAMES, both[0][:2], both[1]) == ["bn.gamma: frozen here, trained in the reference"]
    assert training_notes(NAMES, both[0], both[1][:2]) == ["bn.gamma: trained here, frozen in the reference"]


def test_a_trained_padding_row_is_told_and_nothing_else():
    table = "embed.embedding_table"
    layers = [Layer("embed", 0, "embedding", "Embedding", {"padding_idx": 1}, None, None, (), True)]
    theirs = np.random.default_rng(0).normal(size=(5, 4))
    theirs[1] = 0
    ours = theirs.copy()
    assert padding_notes(NAMES, {table: ours}, {table: theirs}, layers) == []
    ours[1] = 0.1
    assert padding_notes(NAMES, {table: ours}, {table: theirs}, layers) == [
        "embed.embedding_table: its padding row 1 is trained here and not in the reference; MindSpore's nn.Embedding "
        "only starts it at zero: mask its output"
    ]
    ours[3] *= 1.1
    assert padding_notes(NAMES, {table: ours}, {table: theirs}, layers) == []
