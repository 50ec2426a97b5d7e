"""Which samples an update sees: a permutation from (seed, epoch), shared without a rest."""

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.order import Plan, epoch_order, split_batch
from resnet_fn.runtime.workers import Workers


def test_order_is_a_permutation_from_seed_and_epoch_alone():
    first = epoch_order(7, 3, 1437)
    assert sorted(first) == list(range(1437))
    assert (first == epoch_order(7, 3, 1437)).all()
    assert first.dtype == np.int32
    assert (first == np.random.default_rng([7, 3, 1]).permutation(1437)).all()  # as runs of earlier versions go on
    assert (first != epoch_order(7, 4, 1437)).any()
    assert (first != epoch_order(8, 3, 1437)).any()


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(ValueError, match="batch_size: 2000 is larger than the training set of 1437; give at most 1437"):
        Plan(Recipe(batch_size=2000), np.zeros(1437, np.int32), 10, Workers())


def test_an_odd_share_cannot_be_mixed():
    recipe = Recipe(dataset="synthetic", image_size=16, batch_size=6, mixup=0.2, cutmix=1.0)
    with pytest.raises(ValueError, match="a worker's share of 3 is odd; give 8"):
        Plan(recipe, np.zeros(64, np.int32), 5, Workers(0, 2))


@pytest.mark.parametrize("parts", [(1, 1), (2, 4), (8, 8)])
def test_a_batch_that_divides(parts):
    assert split_batch(64, *parts) * parts[0] * parts[1] == 64


def test_a_batch_that_does_not_divide_names_those_that_would():
    message = "batch_size: 64 does not divide into 3 workers x 2 micro-batches; use 60 or 66, or another --accumulate"
    with pytest.raises(ValueError, match=message):
        split_batch(64, 3, 2)
    with pytest.raises(ValueError, match="use 12, or"):
        split_batch(5, 3, 4)
