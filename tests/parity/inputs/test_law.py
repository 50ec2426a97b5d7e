"""Random augmentation is compared in law, by many draws of a ramp."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.parity.inputs.law import compare_laws, is_random
from resnet_fn.parity.inputs.reading import side_of
from resnet_fn.parity.trace.difference import DIFFERS, OK, UNDECIDED

SIZE = 32
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFARS = (0.4914, 0.4822, 0.4465)


class Augment:
    """A random crop and flip with Pillow, as torchvision's RandomResizedCrop."""

    def __init__(self, seed, scale=(0.25, 1.0), flip=0.5, shift=0.0, jitter=0.0):
        self.rng = np.random.default_rng(seed)
        self.scale, self.flip, self.shift, self.jitter = scale, flip, shift, jitter

    def __call__(self, path):
        with Image.open(path) as image:
            image = image.convert("RGB")
        width, height = image.size
        share = np.sqrt(self.rng.uniform(*self.scale))
        size = int(width * share), int(height * share)
        left = int(self.rng.integers(width - size[0] + 1))
        top = int(self.rng.integers(height - size[1] + 1))
        image = image.resize((SIZE, SIZE), box=(left, top, left + size[0], top + size[1]))
        pixels = np.asarray(image, np.float32) / 255 + self.shift
        pixels = pixels * (1 + self.rng.uniform(-self.jitter, self.jitter))
        return (pixels[:, ::-1] if self.rng.random() < self.flip else pixels).transpose(2, 0, 1)


@pytest.fixture
def law(tmp_path):
    def compare(port, reference, draws=500):
        sides = [side_of(one, "side.py:f", "--net", "", (), 0) for one in (port, reference)]
        return compare_laws(*sides, str(tmp_path), draws)

    return compare


def by_name(law):
    return {one.name: one for one in law.results}


def test_one_law_with_two_seeds_agrees(law):
    result = law(Augment(1, jitter=0.2), Augment(2, jitter=0.2))
    assert result.verdict == OK, result.results
    assert {"mirrored", "area", "left", "top", "mean"} <= set(by_name(result))
    assert result.draws == 500


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"flip": 0.0}, "mirrored"),
        ({"flip": 0.2}, "mirrored"),
        ({"scale": (0.5, 1.0)}, "area"),
        ({"scale": (0.08, 1.0)}, "area"),
        ({"jitter": 0.4}, "brightness"),
    ],
)
def test_other_laws_differ_by_name(law, change, name):
    result = law(Augment(1, **change), Augment(2))
    assert result.verdict == DIFFERS
    assert by_name(result)[name].verdict == DIFFERS


class Prepared:
    """The random crop and flip, whose values and channels are changed."""

    def __init__(self, seed, change=lambda pixels: pixels, **options):
        self.draw, self.change = Augment(seed, **options), change

    def __call__(self, path):
        return self.change(self.draw(path))


def normalised(pixels, mean=MEAN, deviation=DEVIATION):
    return (pixels - np.float32(mean)[:, None, None]) / np.float32(deviation)[:, None, None]


@pytest.mark.parametrize(
    ("port", "reference", "names"),
    [
        (np.asarray, normalised, {"black", "white"}),
        (normalised, np.asarray, {"black", "white"}),
        (lambda pixels: pixels * 255, np.asarray, {"white"}),
        (lambda pixels: pixels * (255 / 256), np.asarray, {"white"}),
        (lambda pixels: normalised(pixels, CIFARS), normalised, {"black", "white"}),
        (lambda pixels: normalised(pixels, MEAN, (0.2,) * 3), normalised, {"black", "white"}),
        (lambda pixels: normalised(pixels)[::-1], normalised, {"black", "white", "channels"}),
        (lambda pixels: pixels[::-1], np.asarray, {"channels"}),
        (lambda pixels: pixels[[0, 2, 1]], lambda pixels: pixels[[2, 1, 0]], {"channels"}),
    ],
)
def test_other_values_and_orders_of_channels_differ(law, port, reference, names):
    result = law(Prepared(1, port), Prepared(2, reference), 60)
    assert result.verdict == DIFFERS
    assert {name for name, one in by_name(result).items() if one.verdict == DIFFERS} >= names


def test_values_and_channels_differ_beside_jitter(law):
    port = Prepared(1, lambda pixels: normalised(pixels)[::-1], jitter=0.2)
    result = by_name(law(port, Prepared(2, np.asarray, jitter=0.2), 200))
    differing = {name for name, one in result.items() if one.verdict == DIFFERS}
    assert {"black", "white", "channels"} <= differing


def test_a_difference_of_values_is_told(law):
    result = by_name(law(Prepared(1), Prepared(2, normalised), 100))
    assert result["white"].port == "channel 1: 1"
    assert result["white"].reference == "2.249"
    result = by_name(law(Prepared(1, lambda pixels: pixels[::-1]), Prepared(2), 100))
    assert result["channels"].port == "BGR in 100% of draws"


def erased(rng, probability=0.5, value=0.0):
    def erase(pixels):
        if rng.random() < probability:
            left, top = rng.integers(SIZE // 2, size=2)
            pixels = pixels.copy()
            pixels[:, top : top + SIZE // 2, left : left + SIZE // 2] = value
        return pixels

    return erase


@pytest.mark.parametrize("seed", range(2))
def test_erasing_leaves_values_as_they_are(law, seed):
    """Half of all draws of black and white have other means."""
    rng = np.random.default_rng(100 + seed)
    sides = (Prepared(one, lambda x: erased(rng)(normalised(x))) for one in (seed, 50 + seed))
    result = law(*sides)
    assert result.verdict == OK, result.results
    assert not {"black", "white"} & {*by_name(result)}


def test_gray_and_padding_are_not_measured(law):
    def gray(pixels):
        return pixels.mean(0, keepdims=True).repeat(3, 0)

    def padded(pixels):
        return np.pad(pixels, ((0, 0), (2 * SIZE, 0), (0, 0)))

    result = law(Prepared(1, gray), Prepared(2, gray), 100)
    assert "order of the channels: not measured" in result.not_exercised
    result = law(Prepared(1, padded), Prepared(2, padded), 100)
    assert result.verdict == OK, result.results
    assert "values of a white picture: not measured" in result.not_exercised


def test_flips_and_crops_are_measured_right(law):
    result = by_name(law(Augment(3), Augment(4)))
    assert float(result["mirrored"].port) == pytest.approx(0.5, abs=0.1)
    low, high = (float(one) for one in result["area"].port.partition(",")[0].split(".."))
    assert low == pytest.approx(0.25, abs=0.03)
    assert high == pytest.approx(1.0, abs=0.03)


def test_few_draws_decide_nothing(law):
    result = law(Augment(1), Augment(2), draws=10)
    assert result.verdict == UNDECIDED
    assert "--draws" in result.words


def test_what_is_not_measured_is_listed(law):
    result = law(Augment(1), Augment(2), draws=60)
    assert any("erasing, blur, noise" in line for line in result.not_exercised)


def test_randomness_is_noticed(tmp_path, twelve):
    random, fixed = Augment(1), Augment(1, scale=(1, 1), flip=0)
    for value, expected in ((random, True), (fixed, False)):
        side = side_of(value, "side.py:f", "--net", "", twelve, 0)
        assert is_random(side, twelve) is expected
    assert not [*Path(tmp_path).iterdir()]
