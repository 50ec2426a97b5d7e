"""Which samples an update sees."""

import pytest

from resnet_fn.data.order import split_batch


@pytest.mark.parametrize("parts", [(1, 1), (2, 4), (8, 8)])
def test_a_batch_that_divides(parts):
    assert split_batch(64, *parts) * parts[0] * parts[1] == 64


def test_a_batch_that_does_not_divide_names_those_that_would():
    message = "batch_size: 64 does not divide into 3 workers x 2 micro-batches; use 60 or 66, or another --accumulate"
    with pytest.raises(ValueError, match=message):
        split_batch(64, 3, 2)
    with pytest.raises(ValueError, match="use 12, or"):
        split_batch(5, 3, 4)
