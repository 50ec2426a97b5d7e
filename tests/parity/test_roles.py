"""What is trained and what is shared, in one net and not in the other."""

from resnet_fn.parity.name_map import NameMap
from resnet_fn.parity.roles import sharing_notes, training_notes
from resnet_fn.parity.source import plain

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
