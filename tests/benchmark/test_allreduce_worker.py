"""Which tensors share a bucket."""

from resnet_fn.benchmark.allreduce_worker import fill_buckets


def test_neighbours_share_a_bucket_while_they_fit():
    assert fill_buckets([3, 4, 3, 20, 1, 9, 1], limit=10) == [[0, 1, 2], [3], [4, 5], [6]]


def test_without_a_limit_worth_the_name_each_is_alone():
    assert fill_buckets([3, 4, 3], limit=0) == [[0], [1], [2]]


def test_all_fit_into_a_large_one():
    assert fill_buckets([3, 4, 3], limit=10) == [[0, 1, 2]]
