"""Which samples an update gets, and from which seeds the random numbers of a run are drawn."""

import io
from types import SimpleNamespace

import numpy as np
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import balanced_order
from resnet_fn.data.mix import erase_and_mix
from resnet_fn.data.order import Plan, Streams, draw_epoch, epoch_order, split_batch
from resnet_fn.data.preprocess import training_pixels
from resnet_fn.models.inputs import make_masks
from resnet_fn.runtime.workers import Workers

LABELS = np.repeat([0, 1, 2], [60, 30, 7]).astype(np.int32)


def test_order_is_a_permutation_of_seed_and_epoch():
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


def test_no_two_random_streams_have_equal_seeds(monkeypatch):
    """A stream is an ID and the number of its seed's words, of which no two streams have both.

    NumPy takes up to four words as four, the missing ones as 0, and mixes each further word in: a
    seed of three words is none of five, whatever the words are.
    """
    seeds, default_rng = set(), np.random.default_rng

    def record(seed):
        seeds.add(tuple(seed))
        return default_rng(seed)

    monkeypatch.setattr(np.random, "default_rng", record)
    used = {"max_shift": 1, "crop_padding": 1, "erasing": 1.0, "mixup": 0.2, "drop_path": 0.1}
    recipe = Recipe(dataset="synthetic", image_size=8, batch_size=2, dropout=0.1, **used)
    files = Recipe(dataset="imagefolder", image_size=8, color_jitter=0.1, policy="autoaugment")
    picture = io.BytesIO()
    Image.new("RGB", (9, 9)).save(picture, "PNG")
    batch = np.zeros((2, 3, 8, 8), np.float32), np.zeros(2, np.int32)
    for sampling in ("shuffle", "balanced"):
        Plan(Recipe(batch_size=2, sampling=sampling), LABELS, Workers()).epoch(3)
    draw_epoch(recipe, 3, 2)
    erase_and_mix(recipe, batch, 2, 3, 0, None)
    training_pixels(picture.getvalue(), files, 3, 0, 0)
    make_masks(recipe, SimpleNamespace(blocks=[0], fc=SimpleNamespace(in_channels=4)))(3)
    streams = [(seed[2], len(seed)) for seed in seeds]
    ids = [number for name, number in vars(Streams).items() if name.isupper()]
    assert sorted(stream for stream, _ in streams) == sorted(ids)  # each was drawn from
    assert len(set(streams)) == len(ids)
    assert {words for _, words in streams} == {3, 5}
    assert default_rng([7, 3, 9]).random() != default_rng([7, 3, 9, 0, 0]).random()


def test_mixing_needs_an_even_share_of_each_worker(raises_line):
    recipe = Recipe(dataset="synthetic", image_size=16, batch_size=6, mixup=0.2, cutmix=1.0)
    with raises_line("need an even number per worker, not 3; give 8"):
        Plan(recipe, np.zeros(64, np.int32), Workers(0, 2))


def test_an_uneven_batch_size_lists_sizes_that_divide(raises_line):
    assert [split_batch(64, *parts) for parts in ((1, 1), (2, 4), (8, 8))] == [64, 8, 1]
    with raises_line("batch_size: 64", "3 workers x 2 micro-batches", "use 66", "--accumulate"):
        split_batch(64, 3, 2)
    with raises_line("use 12, or"):
        split_batch(5, 3, 4)
