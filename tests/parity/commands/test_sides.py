"""What the commands make of the flags of a side."""

import argparse
from pathlib import Path

import pytest

from resnet_fn.config import cli
from resnet_fn.parity.commands import sides


def test_a_map_is_read_and_a_mistake_in_it_is_one_line():
    assert sides.corrections_in(argparse.Namespace(map=None)) is None
    Path("names.json").write_text('{"head.weight": "fc.weight"}')
    found = sides.corrections_in(argparse.Namespace(map="names.json"))
    assert {name: str(source) for name, source in found.items()} == {"head.weight": "fc.weight"}
    with pytest.raises(cli.UsageError, match=r"^--map: name.json cannot be read \(No such file or directory\); "):
        sides.corrections_in(argparse.Namespace(map="name.json"))
