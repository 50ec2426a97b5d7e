import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import balanced_order
from resnet_fn.data.order import Plan, epoch_order, split_batch
from resnet_fn.runtime.workers import Workers

LABELS = np.repeat([0, 1, 2], [60, 30, 7]).astype(np.int32)


def test_order_is_a_permutation_from_seed_and_epoch_alone():
    first = epoch_order(7, 3, 1437)
    assert sorted(first) == list(range(1437))
    assert (first == epoch_order(7, 3, 1437)).all()
    assert first.dtype == np.int32
    # the order of earlier versions
    assert (first == np.random.default_rng([7, 3, 1]).permutation(1437)).all()
    assert (first != epoch_order(7, 4, 1437)).any()
    assert (first != epoch_order(8, 3, 1437)).any()
    balanced = Plan(Recipe(batch_size=97, sampling="balanced"), LABELS, Workers()).epoch(3)[0]
    assert (balanced[0] == balanced_order(np.random.default_rng([0, 3, 11]), LABELS)).all()


def test_mixing_needs_an_even_share_of_each_worker():
    recipe = Recipe(dataset="synthetic", image_size=16, batch_size=6, mixup=0.2, cutmix=1.0)
    with pytest.raises(ValueError, match="need an even number per worker, not 3; give 8"):
        Plan(recipe, np.zeros(64, np.int32), Workers(0, 2))


def test_a_batch_divides_evenly_or_the_error_lists_sizes_that_do(raises_line):
    assert [split_batch(64, *parts) for parts in ((1, 1), (2, 4), (8, 8))] == [64, 8, 1]
    with raises_line("batch_size: 64", "3 workers x 2 micro-batches", "use 66", "--accumulate"):
        split_batch(64, 3, 2)
    with raises_line("use 12, or"):
        split_batch(5, 3, 4)
