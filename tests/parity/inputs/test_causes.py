"""Planted causes are named, with Pillow and NumPy alone; right pairs are not accused."""

import dataclasses
import math

import numpy as np
import pytest
from PIL import Image, ImageOps

from resnet_fn.parity.inputs.pictures import pictures_in
from resnet_fn.parity.trace.difference import DIFFERS

SIZE = 64
RESAMPLING = Image.Resampling
CIFAR = np.float32([0.4914, 0.4822, 0.4465]), np.float32([0.2470, 0.2435, 0.2616])


def changed(by_hand, **fields):
    return dataclasses.replace(by_hand, **fields)


def of_pixels(by_hand, change):
    return lambda path: by_hand.normalised(change(by_hand.pixels(by_hand.opened(path))))


def of_image(by_hand, decode):
    return lambda path: by_hand.normalised(by_hand.pixels(decode(path)))


def squashed_and_cropped(by_hand, path):
    whole = by_hand.opened(path).resize((73, 73), RESAMPLING.BILINEAR)
    return by_hand.normalised(whole.crop((4, 4, 4 + SIZE, 4 + SIZE)))


def squashed(by_hand, path):
    return by_hand.normalised(by_hand.opened(path).resize((SIZE, SIZE), RESAMPLING.BILINEAR))


def largest_square(by_hand, path):
    image = by_hand.opened(path)
    side = min(image.size)
    left, top = (round((one - side) / 2) for one in image.size)
    square = image.crop((left, top, left + side, top + side))
    return by_hand.normalised(square.resize((SIZE, SIZE), RESAMPLING.BILINEAR))


def letterboxed(by_hand, level):
    def read(path):
        image = by_hand.opened(path)
        factor = min(SIZE / image.width, SIZE / image.height)
        size = tuple(max(1, round(one * factor)) for one in image.size)
        whole = Image.new("RGB", (SIZE, SIZE), (level,) * 3)
        left, top = ((SIZE - one) // 2 for one in size)
        whole.paste(image.resize(size, RESAMPLING.BILINEAR), (left, top))
        return by_hand.normalised(whole)

    return read


def on_ground(level):
    def decode(path):
        with Image.open(path) as image:
            clear = image.convert("RGBA")
        ground = Image.new("RGBA", clear.size, (level, level, level, 255))
        return Image.alpha_composite(ground, clear).convert("RGB")

    return decode


def indices(path):
    with Image.open(path) as image:
        if image.mode == "P" and image.format == "PNG":
            return Image.fromarray(np.asarray(image)).convert("RGB")
        return image.convert("RGB")


def scaled_16_bits(path):
    with Image.open(path) as image:
        if image.mode.startswith("I"):
            levels = np.asarray(image).astype(np.int64) // 257
            return Image.fromarray(levels.astype(np.uint8)).convert("RGB")
        return image.convert("RGB")


def upright(path):
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def last_frame(path):
    with Image.open(path) as image:
        image.seek(getattr(image, "n_frames", 1) - 1)
        return image.convert("RGB")


def with_gamma(pixels):
    return (255 * (pixels / 255) ** 2.2).round().astype(np.uint8)


# cause → (port, reference or None for torchvision's way by hand, words)
PLANTED = {
    "BGR": (
        lambda h: of_pixels(h, lambda x: x[..., ::-1]),
        None,
        "channels: BGR in the port, RGB in the reference",
    ),
    "not divided by 255": (
        lambda h: of_pixels(h, lambda x: x * 255.0),
        None,
        "pixels in 0..255 with mean and deviation of 0..1",
    ),
    "times 255": (lambda h: lambda path: 255 * h(path), None, "the result multiplied by 255"),
    "mean and deviation exchanged": (
        lambda h: changed(h, mean=h.deviation, deviation=h.mean),
        None,
        "mean and deviation exchanged",
    ),
    "mean and deviation in 0..255": (
        lambda h: changed(h, mean=255 * h.mean, deviation=255 * h.deviation),
        None,
        "mean and deviation in 0..255 on pixels in 0..1",
    ),
    "the mean in 0..255": (
        lambda h: changed(h, mean=255 * h.mean),
        None,
        "the mean in 0..255 on pixels in 0..1",
    ),
    "another set's mean": (
        lambda h: changed(h, mean=CIFAR[0], deviation=CIFAR[1]),
        None,
        "mean and deviation: CIFAR-10's in the port, ImageNet's in the reference",
    ),
    "the mean of BGR": (
        lambda h: changed(h, mean=h.mean[::-1], deviation=h.deviation[::-1]),
        None,
        "mean and deviation in the order of BGR",
    ),
    "divided by 256": (
        lambda h: of_pixels(h, lambda x: x * (255 / 256)),
        None,
        "pixels divided by 256 instead of 255",
    ),
    "filter": (
        lambda h: changed(h, filter=RESAMPLING.BICUBIC),
        None,
        "filter: bicubic in the port, bilinear in the reference",
    ),
    "nearest": (
        lambda h: changed(h, filter=RESAMPLING.NEAREST),
        None,
        "filter: nearest (centre) without antialiasing in the port, bilinear",
    ),
    "squash": (
        lambda h: lambda path: squashed(h, path),
        None,
        "geometry: squashed in the port, the short side resized, then cropped (73)",
    ),
    "squash, then crop": (
        lambda h: lambda path: squashed_and_cropped(h, path),
        None,
        "geometry: squashed to 73 × 73, then cropped in the port, the short side resized",
    ),
    "order of crop and resize": (
        lambda h: lambda path: largest_square(h, path),
        None,
        "order of crop and resize: cropped, then resized (the largest square) in the port",
    ),
    "size of the short side": (
        lambda h: changed(h, resize=70),
        None,
        "size of the short side: 70 pixels in the port, 73 in the reference",
    ),
    "rounding of the crop": (
        lambda h: changed(h, crop=math.floor),
        None,
        "rounding of the crop's offset: floor in the port, round in the reference",
    ),
    "rounding of the long side": (
        lambda h: changed(h, long=round),
        None,
        "rounding of the long side: round in the port, floor in the reference",
    ),
    "letterbox's level": (
        lambda h: letterboxed(h, 0),
        lambda h: letterboxed(h, 114),
        "level of the border: 0 in the port, 114 in the reference",
    ),
    "EXIF ignored": (
        lambda h: h,
        lambda h: of_image(h, upright),
        "an EXIF orientation: orientation ignored in the port, upright in the reference",
    ),
    "alpha": (
        lambda h: of_image(h, on_ground(0)),
        lambda h: of_image(h, on_ground(255)),
        "transparency: alpha on black in the port, alpha on white in the reference",
    ),
    "palette": (lambda h: of_image(h, indices), None, "the palette's indices in the port"),
    "16 bits": (
        lambda h: h,
        lambda h: of_image(h, scaled_16_bits),
        "16 bits: 16 bits cut at 255 in the port, 16 bits scaled in the reference",
    ),
    "gamma": (
        lambda h: of_pixels(h, with_gamma),
        None,
        "gamma: gamma 2.2 after the resize in the port, none",
    ),
    "animation": (lambda h: of_image(h, last_frame), None, "the last frame in the port"),
    "gray": (
        lambda h: of_image(h, lambda path: h.opened(path).convert("L").convert("RGB")),
        None,
        "channels: gray in the port, RGB in the reference",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_named(name, by_hand, compared):
    port, reference, words = PLANTED[name]
    right = reference(by_hand) if reference else by_hand
    verdict = compared(port(by_hand), right)
    assert verdict.first_stage.verdict == DIFFERS
    assert verdict.code == 1
    named = [cause.words for cause in verdict.causes]
    assert any(words in one for one in named), named
    assert len(named) == 1, named


def test_three_causes_at_once_are_all_named(by_hand, compared):
    port = changed(by_hand, filter=RESAMPLING.BICUBIC, mean=CIFAR[0], deviation=CIFAR[1])
    verdict = compared(lambda path: port(path)[::-1], by_hand)
    named = "; ".join(cause.words for cause in verdict.causes)
    assert "BGR in the port" in named
    assert "CIFAR-10's in the port" in named
    assert "bicubic in the port" in named


def test_layouts_are_compared_before_pixels(by_hand, compared):
    verdict = compared(lambda path: by_hand(path).transpose(1, 2, 0), by_hand)
    assert verdict.first_stage.name == "layout"
    assert verdict.first_stage.words == "HWC in the port, CHW in the reference"
    assert verdict.first_picture is None


def test_other_sizes_are_a_difference_of_shapes(by_hand, compared):
    verdict = compared(lambda path: by_hand(path)[:, 1:], by_hand)
    assert verdict.first_stage.name == "shape"
    assert "63 × 64" in verdict.first_stage.words


RIGHT = {
    "the same": lambda h: h,
    "float64": lambda h: lambda path: h(path).astype(np.float64),
    "a batch of one": lambda h: lambda path: h(path)[None],
    "a dict": lambda h: lambda path: {"image": h(path), "label": None},
    "another order of arithmetic": lambda h: (
        lambda path: (
            (np.float32(h.pixels(h.opened(path))) - np.float32(255 * h.mean))
            / np.float32(255 * h.deviation)
        ).transpose(2, 0, 1)
    ),
    "a resize that rounds elsewhere": lambda h: (
        lambda path: h.normalised(rounded_elsewhere(h, h.opened(path)))
    ),
}


def rounded_elsewhere(by_hand, image):
    """The same resize in float, rounded once."""
    bands = [by_hand.pixels(band) for band in image.convert("RGB").split()]
    floats = [by_hand.pixels(band.convert("F")) for band in image.split()]
    assert len(bands) == len(floats)
    return np.stack(floats, -1).round()


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_pair_is_not_accused(name, by_hand, compared):
    verdict = compared(RIGHT[name](by_hand), by_hand)
    assert verdict.agrees, (verdict.first_stage, verdict.undecided)
    assert verdict.code == 0


def test_types_that_differ_are_settings(by_hand, compared):
    verdict = compared(lambda path: by_hand(path).astype(np.float64)[None], by_hand)
    assert verdict.settings == [
        "dtype: float64 in the port, float32 in the reference",
        "shape: a leading axis of one sample in the port alone",
    ]


def test_one_level_more_everywhere_is_a_difference(by_hand, compared):
    """It is as large as rounding, but rounding has no direction."""
    verdict = compared(of_pixels(by_hand, lambda x: x + 1.0), by_hand)
    assert verdict.first_stage.name == "pixels"


def test_half_a_percent_of_deviation_is_a_difference(by_hand, compared):
    verdict = compared(changed(by_hand, deviation=by_hand.deviation * 1.006), by_hand)
    assert verdict.first_stage.name == "pixels"
    assert "mean and deviation" in verdict.causes[0].words


def test_pictures_without_texture_show_no_cause(by_hand, compared, tmp_path):
    for number in range(3):
        Image.new("RGB", (99, 80), (70 * number, 90, 200)).save(tmp_path / f"{number}.png")
    pictures, _ = pictures_in(str(tmp_path), 3)
    verdict = compared(lambda path: by_hand(path) + 1, by_hand, pictures=pictures)
    assert verdict.first_stage.verdict == DIFFERS
    named = [cause.words for cause in verdict.causes]
    assert named == ["no cause is sought, because no plain picture has texture"]


def test_an_unknown_way_is_described_by_the_pixels(by_hand, compared):
    def blurred(path):
        pixels = by_hand.pixels(by_hand.opened(path)).astype(np.float32)
        return pixels[::-1] + np.roll(pixels, 3, 1) ** 2 / 255

    verdict = compared(lambda path: 2 * blurred(path) + 3, blurred)
    named = [cause.words for cause in verdict.causes]
    assert any("times 2, 2, 2, plus 3, 3, 3" in one for one in named), named
    assert any("no way that is known" in one for one in named), named
