import dataclasses

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import crop_and_flip
from resnet_fn.data.colour import colour_each, policy_levels
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.mix import Mixing, draw_mixing, erase, mix
from resnet_fn.data.sources.synthetic import make_synthetic
from resnet_fn.runtime.workers import Workers

PICTURES = make_synthetic(samples=64, classes=5, image_size=16)
RECIPE = Recipe(
    dataset="synthetic",
    image_size=16,
    batch_size=24,
    epochs=4,
    crop_padding=2,
    flip=True,
    policy="trivialaugment",
    color_jitter=0.3,
    erasing=0.4,
    mixup=0.2,
    cutmix=1.0,
)


def test_crop_cuts_the_window_that_the_draws_name():
    images = np.arange(2 * 5 * 4 * 1, dtype=np.uint8).reshape(2, 5, 4, 1)
    draws = np.array([[0.5, 0.5, 0.9], [0.0, 0.99, 0.1]])
    cut = crop_and_flip(images, draws, padding=1, flip=True)
    assert cut[0].tolist() == images[0].tolist()  # the middle of 3 places, not mirrored
    expected = np.zeros((5, 4, 1), np.uint8)  # one up, two right of the padded corner, then mirrored
    expected[1:, :3] = images[1][:4, 1:]
    assert cut[1].tolist() == expected[:, ::-1].tolist()


def test_all_places_are_equally_likely():
    images = np.tile(np.arange(1, 10, dtype=np.uint8).reshape(1, 3, 3, 1), (9000, 1, 1, 1))
    cut = crop_and_flip(images, np.random.default_rng(0).random((9000, 3)), padding=1, flip=False)
    counts = np.bincount(cut[:, 1, 1, 0], minlength=10)[1:]
    assert counts.min() > 900  # 1,000 expected of each of the 9, standard deviation 30
    assert counts.max() < 1100


def test_flip_mirrors_below_one_half_only():
    images = np.arange(12, dtype=np.uint8).reshape(2, 2, 3, 1)
    turned = crop_and_flip(images, np.array([[0, 0, 0.49], [0, 0, 0.5]]), 0, True)
    assert (turned[0] == images[0][:, ::-1]).all()
    assert (turned[1] == images[1]).all()


def test_mixup_is_the_papers_equation():
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(4, 3, 6, 6)).astype(np.float32), np.array([0, 1, 2, 2], np.int32)
    mixed, soft = mix(images, labels, 3, Mixing(0.75))
    partner = [1, 0, 3, 2]
    np.testing.assert_allclose(mixed, 0.75 * images + 0.25 * images[partner], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(soft, [[0.75, 0.25, 0], [0.25, 0.75, 0], [0, 0, 1], [0, 0, 1]])
    assert mixed.dtype == soft.dtype == np.float32


def test_cutmix_labels_share_the_area_that_the_box_really_has():
    for seed in range(200):
        mixing = draw_mixing(np.random.default_rng(seed), 0.0, 1.0, 0.5, 12, 10)
        top, bottom, left, right = mixing.box
        images = np.stack([np.zeros((1, 12, 10)), np.ones((1, 12, 10))]).astype(np.float32)
        mixed, soft = mix(images, np.array([0, 1], np.int32), 2, mixing)
        np.testing.assert_allclose(mixed[0].mean(), soft[0, 1], atol=1e-6)
        assert mixed[0, 0, top:bottom, left:right].sum() == mixed[0].sum()
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)


def test_the_switch_chooses_and_beta_is_beta():
    drawn = [draw_mixing(np.random.default_rng(s), 0.2, 1.0, 0.25, 8, 8) for s in range(2000)]
    assert abs(np.mean([m.box is not None for m in drawn]) - 0.25) < 0.03
    weights = np.array([m.weight for m in drawn if m.box is None])
    assert abs(weights.mean() - 0.5) < 0.03
    assert abs(weights.var() - 1 / (4 * (2 * 0.2 + 1))) < 0.015  # variance of Beta(0.2, 0.2)
    assert all(draw_mixing(np.random.default_rng(s), 0.2, 0.0, 1.0, 8, 8).box is None for s in range(20))


def test_erasing_covers_its_share_of_some_images():
    images = np.ones((4000, 1, 32, 32), np.float32)
    draws = np.random.default_rng(0).random((4000, 5))
    erased = erase(images, draws, 0.25)
    gone = 1 - erased.mean((1, 2, 3))
    assert ((gone > 0) == (draws[:, 0] < 0.25)).all()
    assert gone[gone > 0].min() > 0.01
    assert gone.max() < 0.36
    assert abs(gone[gone > 0].mean() - 0.175) < 0.015  # the middle of 2 % and 33 %, less what does not fit
    assert images.min() == 1  # the input is untouched
    assert erase(images, draws, 0.0) is images


@pytest.mark.parametrize("fields", [{}, {"repeats": 3}, {"policy": "randaugment"}, {"policy": "autoaugment"}])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_workers_share_an_augmented_and_mixed_update_without_changing_it(workers, fields):
    recipe = dataclasses.replace(RECIPE, **fields)
    whole = MemoryFeed(PICTURES, recipe)
    shares = [MemoryFeed(PICTURES, recipe, Workers(rank, workers)) for rank in range(workers)]
    for update in (0, 1, 5):
        images, labels = whole.batch(update)
        parts = [share.batch(update) for share in shares]
        assert np.concatenate([part[0] for part in parts]).tobytes() == images.tobytes()
        assert np.concatenate([part[1] for part in parts]).tobytes() == labels.tobytes()


def test_a_samples_augmentation_hangs_on_seed_epoch_and_sample_alone():
    recipe = dataclasses.replace(RECIPE, mixup=0.0, cutmix=0.0)
    small = dataclasses.replace(recipe, batch_size=8)

    def by_sample(recipe, epoch):
        data = MemoryFeed(PICTURES, recipe)
        first = epoch * data.updates_per_epoch
        updates = range(first, first + data.updates_per_epoch)
        return {
            int(index): image.tobytes()
            for update in updates
            for index, image in zip(data.indices(update), data.batch(update)[0], strict=True)
        }

    large_batches, small_batches = by_sample(recipe, 1), by_sample(small, 1)
    assert all(small_batches[index] == pixels for index, pixels in large_batches.items())
    assert sum(small_batches[i] == pixels for i, pixels in by_sample(small, 2).items()) < 8


def test_colours_leave_the_global_data_seed_alone():
    from mindspore.dataset import config

    config.set_seed(77)
    colour_each(PICTURES.train.images[:3], RECIPE, np.array([5, 6, 7]))
    assert config.get_seed() == 77


def test_labels_stay_probabilities_when_mixing_ends():
    recipe = dataclasses.replace(RECIPE, mix_off_epochs=1)
    data = MemoryFeed(PICTURES, recipe)
    last = 3 * data.updates_per_epoch
    assert (data.batch(last - 1)[1].max(1) < 1).any()
    labels = data.batch(last)[1]
    assert labels.dtype == np.float32
    assert set(labels.reshape(-1).tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataset": "imagefolder", "crop_padding": 4}, "crop_padding: 4 is for sets in memory; give 0"),
        ({"dataset": "imagefolder", "max_rotation": 4.0}, "max_rotation: 4.0 is for sets in memory; give 0"),
        ({"policy": "trivialaugment"}, "policy: 'trivialaugment' needs colour images of 0..255, which the digits"),
        ({"repeats": 7}, "repeats: 7 does not divide the batch size 64"),
        ({"eval_size": 64, "eval_resize": 60}, "eval_resize: 60 is below the crop of 64; give 64 or more"),
        ({"erasing": 1.5}, r"erasing: 1.5 is not in \[0, 1\]"),
        ({"mixup": -1.0}, "mixup: -1.0 is negative; give 0 or more"),
        ({"crop_scale": 0.5}, "crop_scale: 0.5 is for sets of image files; leave it out"),
        ({"crop_scale": 0.0}, r"crop_scale: 0.0 is not in \(0, 1\]"),
    ],
)
def test_wrong_fields_name_value_and_fix(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_an_odd_share_cannot_be_mixed():
    recipe = dataclasses.replace(RECIPE, batch_size=6)
    with pytest.raises(ValueError, match="a worker's share of 3 is odd; give 8"):
        MemoryFeed(PICTURES, recipe, Workers(0, 2))


def test_randaugments_noise_is_normal_around_its_strength():
    recipe = dataclasses.replace(RECIPE, policy="randaugment", policy_magnitude=18, color_jitter=0.0)
    assert policy_levels(recipe) == [18]
    levels = policy_levels(dataclasses.replace(recipe, policy_noise=1.5))
    assert np.mean(levels) == 18
    assert np.std(levels) == pytest.approx(1.5, abs=0.1)
    assert set(policy_levels(dataclasses.replace(recipe, policy_noise=30.0))) <= set(range(31))


def test_randaugments_noise_shows_and_repeats():
    seeds = np.arange(24)
    plain = dataclasses.replace(RECIPE, policy="randaugment", policy_magnitude=18, color_jitter=0.0)
    noisy = dataclasses.replace(plain, policy_noise=5.0)
    once, again = (colour_each(PICTURES.train.images[:24], noisy, seeds) for _ in range(2))
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != colour_each(PICTURES.train.images[:24], plain, seeds).tobytes()


@pytest.mark.parametrize(("noise", "message"), [(31.0, "is not in 0..30"), (1.0, "needs --policy randaugment")])
def test_noise_that_cannot_work_is_refused(noise, message):
    with pytest.raises(ValueError, match=f"policy_noise: {noise} {message}"):
        dataclasses.replace(RECIPE, policy_noise=noise)
