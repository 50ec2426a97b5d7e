"""Planted causes are named, with Pillow and NumPy alone; right pairs are not accused."""

import functools
import math

import numpy as np
import pytest
from PIL import Image, ImageOps

from resnet_fn.parity.inputs.pictures import pictures_in
from resnet_fn.parity.trace.difference import DIFFERS

SIZE = 64
RESAMPLING = Image.Resampling
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
CIFAR = np.float32([0.4914, 0.4822, 0.4465]), np.float32([0.2470, 0.2435, 0.2616])


def opened(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def cut(image, crop=round, size=SIZE):
    left, top = (crop((length - size) / 2) for length in image.size)
    return image.crop((left, top, left + size, top + size))


def squashed(image, size=SIZE):
    return image.resize((size, size), RESAMPLING.BILINEAR)


def short_side(image, resize=73, long=int, filter=RESAMPLING.BILINEAR, crop=round):
    width, height = image.size
    other = max(1, long(resize * max(image.size) / min(image.size)))
    size = (resize, other) if width <= height else (other, resize)
    return cut(image.resize(size, filter), crop)


def normalised(pixels, mean=MEAN, deviation=DEVIATION):
    scaled = np.asarray(pixels, np.float32) / np.float32(255)
    return np.float32((scaled - mean) / deviation).transpose(2, 0, 1)


def by_hand(path, decode=opened, resize=short_side, change=np.asarray, **values):
    """As torchvision's preparation of an evaluation."""
    return normalised(change(np.asarray(resize(decode(path)))), **values)


def way(**parts):
    return functools.partial(by_hand, **parts)


def geometry(**options):
    return way(resize=functools.partial(short_side, **options))


def letterboxed(level):
    def resize(image):
        factor = SIZE / max(image.size)
        size = tuple(max(1, round(length * factor)) for length in image.size)
        whole = Image.new("RGB", (SIZE, SIZE), (level,) * 3)
        left, top = ((SIZE - length) // 2 for length in size)
        whole.paste(image.resize(size, RESAMPLING.BILINEAR), (left, top))
        return whole

    return way(resize=resize)


def on_ground(level):
    def decode(path):
        with Image.open(path) as image:
            clear = image.convert("RGBA")
        ground = Image.new("RGBA", clear.size, (level, level, level, 255))
        return Image.alpha_composite(ground, clear).convert("RGB")

    return way(decode=decode)


def indices(path):
    with Image.open(path) as image:
        if image.mode == "P" and image.format == "PNG":
            return Image.fromarray(np.asarray(image)).convert("RGB")
    return opened(path)


def scaled_16_bits(path):
    with Image.open(path) as image:
        if image.mode.startswith("I"):
            levels = np.asarray(image).astype(np.int64) // 257
            return Image.fromarray(levels.astype(np.uint8)).convert("RGB")
    return opened(path)


def upright(path):
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def last_frame(path):
    with Image.open(path) as image:
        image.seek(getattr(image, "n_frames", 1) - 1)
        return image.convert("RGB")


# What is named → the port; and the reference, if it is another than torchvision's way by hand.
PLANTED = {
    "channels: BGR in the port, RGB in the reference": way(change=lambda x: x[..., ::-1]),
    "channels: gray in the port, RGB in the reference": way(
        decode=lambda path: opened(path).convert("L").convert("RGB")
    ),
    "pixels in 0..255 with mean and deviation of 0..1": way(change=lambda x: x * 255.0),
    "the result multiplied by 255": lambda path: 255 * by_hand(path),
    "mean and deviation exchanged": way(mean=DEVIATION, deviation=MEAN),
    "mean and deviation in 0..255 on pixels in 0..1": way(
        mean=255 * MEAN, deviation=255 * DEVIATION
    ),
    "the mean in 0..255 on pixels in 0..1": way(mean=255 * MEAN),
    "mean and deviation: CIFAR-10's in the port, ImageNet's in the reference": way(
        mean=CIFAR[0], deviation=CIFAR[1]
    ),
    "mean and deviation in the order of BGR": way(mean=MEAN[::-1], deviation=DEVIATION[::-1]),
    "pixels divided by 256 instead of 255": way(change=lambda x: x * (255 / 256)),
    "filter: bicubic in the port, bilinear in the reference": geometry(filter=RESAMPLING.BICUBIC),
    "filter: nearest (centre) without antialiasing in the port, bilinear": geometry(
        filter=RESAMPLING.NEAREST
    ),
    "geometry: squashed in the port, the short side resized, then cropped (73)": way(
        resize=squashed
    ),
    "geometry: squashed to 73 × 73, then cropped in the port, the short side resized": way(
        resize=lambda image: cut(squashed(image, 73))
    ),
    "order of crop and resize: cropped, then resized (the largest square) in the port": way(
        resize=lambda image: squashed(cut(image, size=min(image.size)))
    ),
    "size of the short side: 70 pixels in the port, 73 in the reference": geometry(resize=70),
    "rounding of the crop's offset: floor in the port, round in the reference": geometry(
        crop=math.floor
    ),
    "rounding of the long side: round in the port, floor in the reference": geometry(long=round),
    "level of the border: 0 in the port, 114 in the reference": (letterboxed(0), letterboxed(114)),
    "an EXIF orientation: orientation ignored in the port, upright in the reference": (
        by_hand,
        way(decode=upright),
    ),
    "transparency: alpha on black in the port, alpha on white in the reference": (
        on_ground(0),
        on_ground(255),
    ),
    "the palette's indices in the port": way(decode=indices),
    "16 bits: 16 bits cut at 255 in the port, 16 bits scaled in the reference": (
        by_hand,
        way(decode=scaled_16_bits),
    ),
    "gamma: gamma 2.2 after the resize in the port, none": way(
        change=lambda x: (255 * (x / 255) ** 2.2).round().astype(np.uint8)
    ),
    "the last frame in the port": way(decode=last_frame),
}


@pytest.mark.parametrize("words", PLANTED)
def test_a_planted_cause_is_named(words, compared):
    sides = PLANTED[words]
    verdict = compared(*sides) if isinstance(sides, tuple) else compared(sides, by_hand)
    assert verdict.first_stage.verdict == DIFFERS
    assert verdict.code == 1
    (cause,) = verdict.causes
    assert words in cause.words


def test_three_causes_at_once_are_all_named(compared):
    port = functools.partial(geometry(filter=RESAMPLING.BICUBIC), mean=CIFAR[0], deviation=CIFAR[1])
    verdict = compared(lambda path: port(path)[::-1], by_hand)
    named = "; ".join(cause.words for cause in verdict.causes)
    assert "BGR in the port" in named
    assert "CIFAR-10's in the port" in named
    assert "bicubic in the port" in named


def test_layouts_are_compared_before_pixels(compared):
    verdict = compared(lambda path: by_hand(path).transpose(1, 2, 0), by_hand)
    assert verdict.first_stage.name == "layout"
    assert verdict.first_stage.words == "HWC in the port, CHW in the reference"
    assert verdict.first_picture is None


def test_other_sizes_are_a_difference_of_shapes(compared):
    verdict = compared(lambda path: by_hand(path)[:, 1:], by_hand)
    assert verdict.first_stage.name == "shape"
    assert "63 × 64" in verdict.first_stage.words


def another_order(path):
    """The same arithmetic, in 0..255."""
    pixels = np.float32(short_side(opened(path)))
    return ((pixels - 255 * MEAN) / (255 * DEVIATION)).transpose(2, 0, 1)


def rounded_once(image):
    """The same resize in float, rounded once."""
    return np.stack([short_side(band.convert("F")) for band in image.split()], -1).round()


@pytest.mark.parametrize(
    "port",
    [
        by_hand,
        lambda path: {"image": by_hand(path), "label": None},
        another_order,
        way(resize=rounded_once),
    ],
)
def test_a_right_pair_is_not_accused(port, compared):
    verdict = compared(port, by_hand)
    assert verdict.agrees, (verdict.first_stage, verdict.undecided)
    assert verdict.code == 0


def test_types_that_differ_are_settings(compared):
    verdict = compared(lambda path: by_hand(path).astype(np.float64)[None], by_hand)
    assert verdict.agrees
    assert verdict.settings == [
        "dtype: float64 in the port, float32 in the reference",
        "shape: a leading axis of one sample in the port alone",
    ]


def test_one_level_more_everywhere_is_a_difference(compared):
    """It is as large as rounding, but rounding has no direction."""
    verdict = compared(way(change=lambda x: x + 1.0), by_hand)
    assert verdict.first_stage.name == "pixels"


def test_half_a_percent_of_deviation_is_a_difference(compared):
    verdict = compared(way(deviation=DEVIATION * 1.006), by_hand)
    assert verdict.first_stage.name == "pixels"
    assert "mean and deviation" in verdict.causes[0].words


def test_pictures_without_texture_show_no_cause(compared, tmp_path):
    for number in range(3):
        Image.new("RGB", (99, 80), (70 * number, 90, 200)).save(tmp_path / f"{number}.png")
    pictures, _ = pictures_in(str(tmp_path), 3)
    verdict = compared(lambda path: by_hand(path) + 1, by_hand, pictures)
    assert verdict.first_stage.verdict == DIFFERS
    (cause,) = verdict.causes
    assert cause.words == "no cause is sought, because no plain picture has texture"


def test_an_unknown_way_is_described_by_the_pixels(compared):
    def blurred(path):
        pixels = np.float32(short_side(opened(path)))
        return pixels[::-1] + np.roll(pixels, 3, 1) ** 2 / 255

    verdict = compared(lambda path: 2 * blurred(path) + 3, blurred)
    named = "; ".join(cause.words for cause in verdict.causes)
    assert "times 2, 2, 2, plus 3, 3, 3" in named
    assert "no way that is known" in named
