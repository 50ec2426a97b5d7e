"""Random augmentation is compared in law, by many draws of a ramp."""

import numpy as np
import pytest
from PIL import Image

from resnet_fn.parity.inputs.law import is_random
from resnet_fn.parity.trace.difference import DIFFERS, OK, UNDECIDED

SIZE = 32
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFARS = (0.4914, 0.4822, 0.4465)


class Augment:
    """A random crop and flip with Pillow, as torchvision's RandomResizedCrop, whose values and
    channels are changed.
    """

    resampling = Image.Resampling.BICUBIC

    def __init__(self, seed, change=np.asarray, scale=(0.25, 1.0), flip=0.5, jitter=0.0):
        self.rng, self.change = np.random.default_rng(seed), change
        self.scale, self.flip, self.jitter = scale, flip, jitter

    def __call__(self, path):
        with Image.open(path) as image:
            image = image.convert("RGB")
        size = (np.array(image.size) * np.sqrt(self.rng.uniform(*self.scale))).astype(int)
        corner = self.rng.integers(image.size - size + 1)
        image = image.resize((SIZE, SIZE), self.resampling, (*corner, *corner + size))
        pixels = np.asarray(image, np.float32) / 255
        pixels = pixels * (1 + self.rng.uniform(-self.jitter, self.jitter))
        flipped = pixels[:, ::-1] if self.rng.random() < self.flip else pixels
        return self.change(flipped.transpose(2, 0, 1))


def by_name(law):
    return {result.name: result for result in law.results}


def differing(law):
    return {result.name for result in law.results if result.verdict == DIFFERS}


def test_one_law_with_two_seeds_agrees(law):
    result = law(Augment(1, jitter=0.2), Augment(2, jitter=0.2), 500)
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
    result = law(Augment(1, **change), Augment(2), 500)
    assert result.verdict == DIFFERS
    assert name in differing(result)


def normalised(pixels, mean=MEAN, deviation=DEVIATION):
    return (pixels - np.float32(mean)[:, None, None]) / np.float32(deviation)[:, None, None]


@pytest.mark.parametrize(
    ("port", "reference", "names"),
    [
        (np.asarray, normalised, {"black", "white"}),
        (normalised, np.asarray, {"black", "white"}),
        (lambda pixels: pixels * (255 / 256), np.asarray, {"white"}),
        (lambda pixels: normalised(pixels, CIFARS), normalised, {"black", "white"}),
        (lambda pixels: normalised(pixels, MEAN, (0.2,) * 3), normalised, {"black", "white"}),
        (lambda pixels: normalised(pixels)[::-1], normalised, {"black", "white", "channels"}),
        (lambda pixels: pixels[::-1], np.asarray, {"channels"}),
        (lambda pixels: pixels[[0, 2, 1]], lambda pixels: pixels[[2, 1, 0]], {"channels"}),
    ],
)
def test_other_values_and_orders_of_channels_differ(law, port, reference, names):
    result = law(Augment(1, port), Augment(2, reference), 60)
    assert result.verdict == DIFFERS
    assert differing(result) >= names


def test_values_and_channels_differ_beside_jitter(law):
    port = Augment(1, lambda pixels: normalised(pixels)[::-1], jitter=0.2)
    result = law(port, Augment(2, jitter=0.2), 200)
    assert {"black", "white", "channels"} <= differing(result)


def test_a_difference_of_values_is_told(law):
    result = by_name(law(Augment(1), Augment(2, normalised), 100))
    assert result["white"].port == "channel 1: 1"
    assert result["white"].reference == "2.249"
    result = by_name(law(Augment(1, lambda pixels: pixels[::-1]), Augment(2), 100))
    assert result["channels"].port == "BGR in 100% of draws"


@pytest.mark.parametrize("seed", range(2))
def test_erasing_leaves_values_as_they_are(law, seed):
    """Half of all draws of black and white have other means."""
    rng = np.random.default_rng(100 + seed)

    def erased(pixels):
        pixels = normalised(pixels)
        if rng.random() < 0.5:
            left, top = rng.integers(SIZE // 2, size=2)
            pixels[:, top : top + SIZE // 2, left : left + SIZE // 2] = 0
        return pixels

    result = law(Augment(seed, erased), Augment(50 + seed, erased), 500)
    assert result.verdict == OK, result.results
    assert not {"black", "white"} & {*by_name(result)}


def test_filter_and_decoding_are_left_out_by_name(law):
    """The ramp is smooth and plain: a nearest neighbour gives what a filter gives."""

    class Nearest(Augment):
        resampling = Image.Resampling.NEAREST

    result = law(Nearest(1), Augment(2), 500)
    assert result.verdict == OK, result.results
    line = result.not_exercised[-2]
    assert line.startswith(
        "the filter and antialiasing of a resize, and how awkward pictures (EXIF"
    )
    assert line.endswith("are not compared")


def test_gray_and_padding_are_not_measured(law):
    def gray(pixels):
        return pixels.mean(0, keepdims=True).repeat(3, 0)

    def padded(pixels):
        return np.pad(pixels, ((0, 0), (2 * SIZE, 0), (0, 0)))

    result = law(Augment(1, gray), Augment(2, gray), 100)
    assert "order of the channels: not measured" in result.not_exercised
    result = law(Augment(1, padded), Augment(2, padded), 100)
    assert result.verdict == OK, result.results
    assert "values of a white picture: not measured" in result.not_exercised


def test_flips_and_crops_are_measured_right(law):
    result = by_name(law(Augment(3), Augment(4), 500))
    assert float(result["mirrored"].port) == pytest.approx(0.5, abs=0.1)
    area = [float(bound) for bound in result["area"].port.partition(",")[0].split("..")]
    assert area == pytest.approx([0.25, 1.0], abs=0.03)


def test_few_draws_decide_nothing(law):
    result = law(Augment(1), Augment(2), 10)
    assert result.verdict == UNDECIDED
    assert "--draws" in result.words


def test_what_is_not_measured_is_listed(law):
    result = law(Augment(1), Augment(2), 60)
    assert any("erasing, blur, noise" in line for line in result.not_exercised)


def test_randomness_is_noticed(side, twelve):
    assert is_random(side(Augment(1)), twelve)
    assert not is_random(side(Augment(1, scale=(1, 1), flip=0)), twelve)
