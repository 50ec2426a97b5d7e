"""Defaults of MindSpore's layers that will change are named in a port."""

import inspect
from pathlib import Path

import pytest
from mindspore import nn

from resnet_fn.doctor.__main__ import main
from resnet_fn.doctor.port import CHANGES

PORT = """
from mindspore import nn

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3{conv})
        self.norm = nn.BatchNorm2d(4{norm})
        self.pool = nn.MaxPool2d(2{pool})
        self.act = nn.LeakyReLU({act})
        self.drop = nn.Dropout({drop})
"""
RESTING = {"conv": "", "norm": "", "pool": "", "act": "", "drop": "0.9"}
WRITTEN = {
    "conv": ', 1, "same", has_bias=False',
    "norm": ", momentum=0.9",
    "pool": ", stride=1",
    "act": "0.2",
    "drop": "p=0.1",
}


def test_each_change_is_of_an_argument():
    for name, changes in CHANGES.items():
        assert {*changes} <= {*inspect.signature(getattr(nn, name).__init__).parameters}, name


@pytest.fixture
def doctor(capsys):
    """doctor(settings) returns the lines about the port with these settings."""

    def run(settings):
        Path("port.py").write_text(PORT.format(**settings))
        main(["port.py:Net"])
        return capsys.readouterr().out.splitlines()

    return run


def test_changing_defaults_are_named_with_a_fix(doctor):
    lines = doctor(RESTING)
    for words in (
        ("Conv2d", "write pad_mode='same' (conv)"),
        ("Conv2d", "write has_bias=False (conv)"),
        ("BatchNorm2d", "write momentum=0.9; with a later MindSpore write 0.1,", "(norm)"),
        ("MaxPool2d", "write stride=1 (pool)"),
        ("LeakyReLU", "write alpha=0.2 (act)"),
        ("Dropout", "write p=0.1 (drop)"),
    ):
        assert any(all(word in line for word in words) for line in lines), words
    assert len(lines) == 6


def test_arguments_that_a_port_gives_are_no_finding(doctor):
    (line,) = doctor(WRITTEN)
    assert "nothing depends on a default" in line
