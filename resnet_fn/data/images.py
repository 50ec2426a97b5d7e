"""This module resizes, normalises and augments images in NumPy arrays."""

import numpy as np

from resnet_fn.data.input_spec import InputSpec


def prepare(images: np.ndarray, image_size: int, spec: InputSpec) -> np.ndarray:
    """Resize images, uint8 [N, H, W, C], bilinearly, and normalise them to float32 [N, C,
    image_size, image_size].
    """
    if images.dtype == np.uint8 and images.shape[1:3] == (image_size, image_size):
        planes = images.transpose(0, 3, 1, 2)
        return normalise(planes, spec, np.empty(planes.shape, np.float32))
    mean, std = spec.moments
    scaled = images.astype(np.float32) / spec.full_scale
    rows = _resize_matrix(images.shape[1], image_size)
    columns = _resize_matrix(images.shape[2], image_size)
    resized = np.einsum("ph,nhwc,qw->ncpq", rows, scaled, columns, optimize=True)
    resized -= mean[:, None, None]
    resized /= std[:, None, None]
    return resized


def normalise(planes: np.ndarray, spec: InputSpec, result: np.ndarray) -> np.ndarray:
    """Write (planes / full_scale − mean) / std into `result`, float32 [N, C, H, W], and return
    `result`.
    """
    mean, std = spec.moments
    np.copyto(result, planes)
    result /= np.float32(spec.full_scale)
    result -= mean[:, None, None]
    result /= std[:, None, None]
    return result


def like_float_feed(images: np.ndarray, spec: InputSpec) -> np.ndarray:
    """Normalise a feed's uint8 images, [N, C, H, W], to float32.

    Float32 images are returned unchanged.
    """
    if images.dtype == np.float32:
        return images
    return normalise(images, spec, np.empty(images.shape, np.float32))


def _resize_matrix(old: int, new: int) -> np.ndarray:
    # Row i holds the weights of the source pixels in target pixel i. Pixel i has its centre at (i +
    # 1/2) · old / new. A source pixel's weight falls from 1 at the centre to 0 at a distance of 1.
    centre = (np.arange(new) + 0.5) * old / new - 0.5
    centre = np.clip(centre, 0, old - 1)[:, None]
    source = np.arange(old)
    from_left = centre - (source - 1)
    from_right = 1 - (centre - source)
    return np.minimum(from_right, from_left).clip(0).astype(np.float32)


def random_affine(
    images: np.ndarray,
    draws: np.ndarray,
    max_shift: float,
    max_rotation: float,
    max_zoom: float,
    fill: np.ndarray,
) -> np.ndarray:
    """Shift, rotate and zoom images, float32 [N, C, H, W], bilinearly. Pixels outside an image are
    `fill`, [C].

    The columns of `draws`, [N, 4] in [−1, 1), choose vertical shift, horizontal shift, rotation and
    zoom. Shifts are whole pixels, and `max_rotation` is in degrees. If `max_zoom` is 0.1, zoom
    factors are from 0.9 to 1.1.
    """
    count, channels, height, width = images.shape
    vertical, horizontal, rotation, size = draws.T[..., None, None, None]  # each [N, 1, 1, 1]
    shift_y = np.round(vertical * (max_shift + 0.5)).clip(-max_shift, max_shift)
    shift_x = np.round(horizontal * (max_shift + 0.5)).clip(-max_shift, max_shift)
    angle = np.deg2rad(rotation * max_rotation)
    zoom = 1.0 / (1.0 + size * max_zoom)
    cos = np.cos(angle) * zoom
    sin = np.sin(angle) * zoom
    middle_y = (height - 1) / 2
    middle_x = (width - 1) / 2
    y = (np.arange(height) - middle_y)[:, None]
    x = np.arange(width) - middle_x
    # These are each target pixel's coordinates in the source image, after padding with one pixel of
    # `fill` per side, [N, 1, H, W].
    source_y = cos * y - sin * x + middle_y + shift_y + 1
    source_x = sin * y + cos * x + middle_x + shift_x + 1
    source_y = source_y.clip(0, height + 1)
    source_x = source_x.clip(0, width + 1)
    padded = np.empty((count, channels, height + 2, width + 2), np.float32)
    padded[:] = fill[:, None, None]
    padded[:, :, 1:-1, 1:-1] = images
    top = np.minimum(source_y.astype(int), height)
    left = np.minimum(source_x.astype(int), width)
    down = (source_y - top).astype(np.float32)
    right = (source_x - left).astype(np.float32)
    sample = np.arange(count)[:, None, None, None]
    channel = np.arange(channels)[:, None, None]

    def corner(dy: int, dx: int) -> np.ndarray:
        return padded[sample, channel, top + dy, left + dx]

    upper = corner(0, 0) * (1 - right) + corner(0, 1) * right
    lower = corner(1, 0) * (1 - right) + corner(1, 1) * right
    return upper * (1 - down) + lower * down
