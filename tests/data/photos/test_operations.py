"""The operations of policies: their definitions, and torchvision's pixels."""

import numpy as np
import pytest
from PIL import Image
from resnet_fn.data.photos.operations import OPERATIONS, apply, enhance

# A magnitude that does something, and one of the other sign.
SIGNED = {
    **dict.fromkeys(("ShearX", "ShearY"), (0.3, 0.99, 0.033)),
    **dict.fromkeys(("TranslateX", "TranslateY"), (1.0, 14.5, 32.0)),
    "Rotate": (1.0, 30.0, 90.0, 135.0),
    **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), (0.03, 0.9)),
}
OTHERS = {"Posterize": (8.0, 4.0, 2.0), "Solarize": (255.0, 127.5, 0.0)}


def magnitudes(name):
    return [sign * value for value in SIGNED.get(name, ()) for sign in (1, -1)] or OTHERS.get(name, (0.0,))


@pytest.mark.parametrize("name", OPERATIONS)
def test_pixels_are_torchvisions(name, make_photograph, torchvision):
    reference = torchvision.transforms.autoaugment
    nearest = torchvision.transforms.InterpolationMode.NEAREST
    for picture in (make_photograph(1, 64, 64), make_photograph(2, 53, 53), Image.new("RGB", (9, 9), (7, 7, 7))):
        for magnitude in magnitudes(name):
            theirs = reference._apply_op(picture, name, magnitude, nearest, None)
            assert apply(picture, name, magnitude).tobytes() == theirs.tobytes(), magnitude


def test_definitions(make_photograph):
    """Without torchvision: what each operation is."""
    picture = make_photograph(3, 40, 40)
    pixels = np.asarray(picture).astype(int)

    def of(name, magnitude=0.0):
        return np.asarray(apply(picture, name, magnitude)).astype(int)

    assert (of("Identity") == pixels).all()
    assert (of("Invert") == 255 - pixels).all()
    assert (of("Posterize", 3) == pixels // 32 * 32).all()
    assert (of("Solarize", 100.0) == np.where(pixels < 100, pixels, 255 - pixels)).all()
    assert (of("TranslateX", 4.9)[:, 4:] == pixels[:, :-4]).all()
    assert not of("TranslateX", 4.9)[:, :4].any()
    assert (of("TranslateY", -3.0)[:-3] == pixels[3:]).all()
    assert (of("Rotate", 90.0) == np.rot90(pixels)).all()
    assert np.abs(of("Brightness", -0.5) - pixels / 2).max() <= 1
    assert np.ptp(of("Color", -1.0), axis=2).max() == 0  # grey
    assert (of("AutoContrast").min((0, 1)) == 0).all()
    assert (of("AutoContrast").max((0, 1)) == 255).all()
    assert np.asarray(enhance(picture, "Contrast", 1.0)).tobytes() == picture.tobytes()
