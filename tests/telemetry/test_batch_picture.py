"""What the picture of the first batch shows, by its pixels."""

import numpy as np
from PIL import ImageFont

from resnet_fn.telemetry.batch_picture import ascii_name, draw_batch, label_texts


def test_the_grey_scale_is_fixed():
    """0 is mid-grey, 2.5 white, -2.5 black, whatever else is in the batch: one that is not centred looks pale."""
    images = np.zeros((6, 1, 8, 8), np.float32)
    images[1], images[2], images[3], images[4] = 2.5, -2.5, 1.25, 9.0
    picture = draw_batch(images, np.zeros(6, np.int64), ["a"])
    assert (picture.dtype, picture.shape) == (np.uint8, (58 + 2 * 166, 700, 3))
    for index, grey in enumerate((128, 255, 0, 191, 255)):
        assert (picture[58:192, 3 + 140 * index : 137 + 140 * index] == grey).all(), index
    assert (picture[224:358, 3:137] == 128).all()  # the sixth is in the second row


def test_before_pillow_10_1_letters_are_small(monkeypatch):
    first = ImageFont.load_default()
    monkeypatch.setattr(ImageFont, "load_default", lambda: first)
    picture = draw_batch(np.zeros((1, 1, 8, 8), np.float32), np.array([0]), ["a"])
    assert (picture[:58] < 128).any()
    assert (picture[192:] < 128).any()


def test_ten_images_are_shown_and_a_long_name_stays_below_its_own():
    images = np.zeros((12, 3, 40, 40), np.float32)
    short = draw_batch(images, np.arange(12), ["m"] * 12)
    long = draw_batch(images, np.arange(12), ["m" * 40, *"m" * 11])
    assert short.shape == long.shape == (58 + 2 * 166, 700, 3)
    assert (short != long)[:, :137].any()
    assert (short == long)[:, 137:].all()


def test_labels_are_named():
    assert label_texts(np.array([1, 0]), ["cat", "dog"]) == ["dog", "cat"]
    soft = np.float32([[0.7, 0.3, 0.0], [0.02, 0.96, 0.02]])
    assert label_texts(soft, ["cat", "dog", "emu"]) == ["70% cat\n30% dog", "96% dog"]
    several = np.float32([[1, 1, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]])  # in words, and never in half of one
    names = ["a mountain bike", "snow", "an old lighthouse"]
    assert label_texts(several, names) == ["a mountain\nbike, ...", "no class", "snow", "a mountain\nbike, snow"]


def test_names_that_pils_font_has_not_are_told_otherwise():
    """PIL's own font draws a box for each letter that it lacks."""
    assert ascii_name("éléphant", 4) == "elephant"
    assert ascii_name("猫", 4) == "class 4"
    assert ascii_name("\udcff", 0) == "class 0"  # a folder's name that is no UTF-8
