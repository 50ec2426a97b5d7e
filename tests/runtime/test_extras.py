"""A package that only some commands need: it is there, or the message says what to type."""

import pytest

from resnet_fn.runtime.extras import import_extra


def test_what_is_not_there_is_named_with_what_to_type():
    with pytest.raises(ValueError, match=r"^a plot needs no_such_module.part; pip install no_such_module$"):
        import_extra("no_such_module.part", "a plot")
