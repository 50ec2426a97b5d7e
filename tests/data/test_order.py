"""Which samples an update sees: a permutation from (seed, epoch), shared without a rest."""

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
    assert (first == np.random.default_rng([7, 3, 1]).permutation(1437)).all()  # the order of earlier versions
    assert (first != epoch_order(7, 4, 1437)).any()
    assert (first != epoch_order(8, 3, 1437)).any()


def test_mixing_needs_an_even_share_of_each_worker():
    recipe = Recipe(dataset="synthetic", image_size=16, batch_size=6, mixup=0.2, cutmix=1.0)
    with pytest.raises(ValueError, match="a worker's share of 3 is odd; give 8"):
        Plan(recipe, np.zeros(64, np.int32), Workers(0, 2))


def test_a_batch_divides_evenly_or_the_error_lists_sizes_that_do():
    assert [split_batch(64, *parts) for parts in ((1, 1), (2, 4), (8, 8))] == [64, 8, 1]
    message = "batch_size: 64 does not divide into 3 workers x 2 micro-batches; use 66, or another --accumulate"
    with pytest.raises(ValueError, match=message):
        split_batch(64, 3, 2)
    with pytest.raises(ValueError, match="use 12, or"):
        split_batch(5, 3, 4)


def test_workers_share_a_balanced_epoch_and_a_sample_that_returns_varies_anew():
    recipe = Recipe(batch_size=16, sampling="balanced", repeats=2)
    plans = [Plan(recipe, LABELS, Workers(rank, 2)) for rank in range(2)]
    alone = Plan(recipe, LABELS, Workers())
    whole, numbers = alone.epoch(1)
    assert whole.shape == (6, 16)
    assert (whole[:, :8].ravel() == balanced_order(np.random.default_rng([0, 1, 11]), LABELS)[:48]).all()
    np.testing.assert_array_equal(np.concatenate([plan.epoch(1)[0] for plan in plans], 1), whole)
    assert len(np.unique(numbers)) == 48  # a number for each place, shared by a sample's two repeats alone
    assert (numbers[:, :8] == numbers[:, 8:]).all()
    assert (whole[:, :8] == whole[:, 8:]).all()


def test_numbers_are_the_samples_own_or_with_balanced_sampling_those_of_its_place():
    labels = np.repeat(np.arange(3), 7).astype(np.int32)
    plan = Plan(Recipe(batch_size=6, repeats=3), labels, Workers(1, 2))
    samples, numbers = plan.epoch(0)
    assert plan.repeat_numbers().tolist() == [1, 2, 2]  # places 3, 4 and 5 of 0 0 1 1 2 2
    assert numbers[1].tolist() == samples[1].tolist() == plan.indices(1).tolist()
    balanced = Plan(Recipe(batch_size=6, sampling="balanced"), labels, Workers(1, 2))
    assert balanced.epoch(0)[1][2].tolist() == [15, 16, 17]
