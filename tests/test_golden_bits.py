"""scripts/golden_bits.py: what differs between two commits, and how convolutions were computed."""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
golden_bits = importlib.import_module("golden_bits")


def test_another_way_of_convolutions_is_named():
    older = {"state": "a", "losses": [1.0]}  # does not have the way
    standard = {**older, "convolutions": "standard"}
    products = {**older, "state": "b", "convolutions": "products"}
    differences = golden_bits.differences
    assert differences({"digits": standard}, {"digits": older}) == []
    assert differences({"digits": standard}, {"digits": {**older, "state": "b"}}) == [
        "digits: state differ"
    ]
    assert differences({"digits": products}, {"digits": older}) == [
        "digits: convolutions, state differ (convolutions: products, before standard)"
    ]
    assert differences({"digits": older}, {}) == ["digits: only in the new one"]
    assert differences({}, {"digits": older}) == ["digits: only in the old one"]
