"""Few numbers of an array show how far another array is from it."""

import numpy as np
import pytest

from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.drawn import Range, draw, range_of
from resnet_fn.parity.trace.sketch import FEW, SUMS, nearest, sketch


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def shown(array, other, seed=0):
    """What the sketch of `other` shows, beside `array`."""
    return nearest(array, sketch(other, seed, "a"), seed, "a")


def test_drawn_numbers_follow_the_documented_formula():
    entropy = np.random.SeedSequence([7, *b"weights conv.weight"])
    bits = np.random.PCG64(entropy).random_raw(6)
    low, high = np.float32(-0.5), np.float32(1.5)
    expected = [
        low + (high - low) * np.float32(int(one) >> 40) * np.float32(2**-24) for one in bits
    ]
    drawn = draw(7, "weights conv.weight", (2, 3), Range(-0.5, 1.5))
    assert drawn.dtype == np.float32
    assert drawn.ravel().tolist() == pytest.approx(expected, rel=1e-7)
    # as NumPy 1.26 draws them: files that were written hold on every version
    assert drawn.tobytes().hex()[:16] == "f058a9bdf8947e3e"


def test_a_range_keeps_mean_deviation_and_sign(rng):
    array = rng.normal(2, 0.3, 10_000).astype(np.float32)
    drawn = draw(0, "a", array.shape, range_of(array))
    assert abs(drawn.mean() - 2) < 0.02
    assert abs(drawn.std() - 0.3) < 0.02
    assert range_of(rng.exponential(1, 1000)).low >= 0
    assert range_of(np.ones(8)) == Range(0.5, 1.5)
    assert range_of(np.float32([[4.6]])) == Range(*[float(np.float32(4.6))] * 2)


def test_sums_estimate_the_distance(rng):
    array = rng.normal(size=(8, 60))
    other = array + 0.01 * rng.normal(size=array.shape)
    squares = [norm(array - shown(array, other, seed)) ** 2 for seed in range(200)]
    assert np.mean(squares) / norm(array - other) ** 2 == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("size", [FEW, 100, 5000])
def test_one_changed_number_is_seen_in_full(rng, size):
    array = rng.normal(size=size)
    other = array.copy()
    other[size // 3] += 0.5
    assert norm(array - shown(array, other)) == pytest.approx(0.5, rel=0.02)


def test_a_multiple_is_recognised(rng):
    array = rng.normal(size=400)
    assert shown(array, -0.25 * array) == pytest.approx(-0.25 * array, rel=1e-5)


def test_zeros_of_a_relu_stay_zeros(rng):
    array = np.maximum(rng.normal(size=1000), 0)
    other = array * (1 + 1e-6 * rng.normal(size=1000))
    assert not shown(array, other)[array == 0].any()


def test_the_norm_alone_shows_a_difference(rng):
    """A difference that leaves all sums and samples as they are."""
    array = rng.normal(size=40)
    kept = sketch(array, 0, "a")
    larger = kept._replace(numbers=np.concatenate([kept.numbers[:1] * 1.1, kept.numbers[1:]]))
    assert norm(nearest(array, larger, 0, "a")) == pytest.approx(1.1 * norm(array), rel=0.05)


@pytest.mark.parametrize("masked", [0.3, 0.8])
@pytest.mark.parametrize("levels", [[-1e9], [-1e4, -2e4]])
def test_masks_hide_no_other_numbers(masked, levels, rng):
    array = np.where(rng.random(500) < masked, rng.choice(levels, 500), rng.normal(size=500))
    usual = array > -1e3
    other = np.where(usual, array + 0.1, array)
    made = shown(array, other)
    assert 0.3 < norm((made - array)[usual]) / norm((other - array)[usual]) < 2
    assert made[~usual].tolist() == pytest.approx(array[~usual].tolist())


def test_large_channels_of_large_numbers_are_seen(rng):
    """Only a mask's constants are hidden where most numbers are large."""
    array = rng.uniform(5e3, 2e4, (40, 20))
    array[:, :2] = rng.uniform(2e6, 5e6, (40, 2))
    other = array.copy()
    other[:, :2] *= 1.1
    made = shown(array, other)
    assert 0.3 < norm(made - array) / norm(other - array) < 3


def test_integers_that_changed_are_seen(rng):
    array = rng.integers(0, 9, 100)
    other = array.copy()
    other[3:30] += 1
    assert shown(array, array) is array
    made = shown(array, other)
    assert made.dtype == array.dtype
    assert (made != array).any()


def test_nan_is_far_from_any_number(rng):
    assert np.isfinite(shown(np.full(100, np.nan), rng.normal(size=100))).all()


def test_what_moves_no_kept_number_is_not_seen(rng):
    """Why the verdict of a small trace is never "the same"."""
    array = rng.normal(size=60)
    rows = np.array([sketch(one, 0, "a").numbers[1:] for one in np.eye(60)]).T
    apart = 1e-4 * rng.normal(size=60)
    within, *_ = np.linalg.lstsq(rows, rows @ apart, rcond=None)
    other = array + apart - within
    assert norm(other - array) > 5e-5 * norm(array)
    assert norm(shown(other, array) - other) < 1e-5 * norm(array)


def test_not_finite_numbers_count_only_in_samples(rng):
    array = rng.normal(size=100)
    array[50] = np.inf
    assert shown(array, array) is array
    assert len(sketch(array, 0, "a").numbers) == FEW > SUMS
