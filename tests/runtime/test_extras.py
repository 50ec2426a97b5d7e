"""A package that only some commands need: it is there, or the message says what to type."""

import json

import pytest

from resnet_fn.runtime.extras import import_extra


def test_what_is_there_is_imported():
    assert import_extra("json", "this test") is json


def test_what_is_not_there_is_named_with_its_extra():
    with pytest.raises(ValueError, match=r"^a plot needs no_such_module; pip install 'resnet_fn\[plots\]'$"):
        import_extra("no_such_module", "a plot", "plots")
