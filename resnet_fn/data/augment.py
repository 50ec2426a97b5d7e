"""Images to a net's input, and their random variation, vectorised over a batch in NumPy."""

import numpy as np

from resnet_fn.data.input_spec import InputSpec


def prepare(images: np.ndarray, image_size: int, spec: InputSpec) -> np.ndarray:
    """Scale to 0..1, resize bilinearly (half-pixel centres, no antialiasing), normalise.

    Args:
        images: uint8 [N, H, W, C].
        image_size: output height and width.
        spec: full scale, mean and std.

    Returns:
        float32 [N, C, image_size, image_size].
    """
    if images.dtype == np.uint8 and images.shape[1:3] == (image_size, image_size):
        planes = images.transpose(0, 3, 1, 2)
        return normalise(planes, spec, np.empty(planes.shape, np.float32))
    mean, std = spec.moments
    scaled = images.astype(np.float32) / spec.full_scale
    rows, columns = _resize_matrix(images.shape[1], image_size), _resize_matrix(images.shape[2], image_size)
    resized = np.einsum("ph,nhwc,qw->ncpq", rows, scaled, columns, optimize=True)
    return ((resized - mean[:, None, None]) / std[:, None, None]).astype(np.float32)


def normalise(planes: np.ndarray, spec: InputSpec, result: np.ndarray) -> np.ndarray:
    """(pixels / full_scale − mean) / std, in float32 and in this order: the bits of torchvision's ToTensor, Normalize.

    Args:
        planes: uint8 [N, C, H, W].
        spec: full scale, mean and std.
        result: float32 [N, C, H, W], is written and returned.
    """
    # In place, on rows of one channel: the same bits four times as fast as a table of the 256 values.
    mean, std = spec.moments
    np.copyto(result, planes)
    result /= np.float32(spec.full_scale)
    result -= mean[:, None, None]
    result /= std[:, None, None]
    return result


def _resize_matrix(old: int, new: int) -> np.ndarray:
    # Row i holds the weights of the source pixels that target pixel i is made of; centres at (i + 1/2) · old / new.
    centre = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.floor(centre).astype(int)
    high = np.minimum(low + 1, old - 1)
    weight = centre - low
    matrix = np.zeros((new, old), np.float32)
    np.add.at(matrix, (np.arange(new), low), 1 - weight)
    np.add.at(matrix, (np.arange(new), high), weight)
    return matrix


def random_affine(
    images: np.ndarray, draws: np.ndarray, max_shift: float, max_rotation: float, max_zoom: float, fill: np.ndarray
) -> np.ndarray:
    """Shift, rotate and zoom each image about its centre, with bilinear interpolation.

    Args:
        images: float32 [N, C, H, W].
        draws: [N, 4] in [−1, 1): vertical shift, horizontal shift, rotation and zoom as shares of their maxima.
            Shifts are whole pixels.
        max_shift: pixels.  max_rotation: degrees.  max_zoom: fraction of 1.
        fill: [C], the value outside the image (a black pixel after normalisation).

    Returns:
        float32 [N, C, H, W].
    """
    if not (max_shift or max_rotation or max_zoom):
        return images
    count, channels, height, width = images.shape
    shift = np.round(draws[:, :2] * (max_shift + 0.5)).clip(-max_shift, max_shift)
    angle = np.deg2rad(draws[:, 2] * max_rotation)
    zoom = 1.0 / (1.0 + draws[:, 3] * max_zoom)
    y, x = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    cos, sin = (np.cos(angle) * zoom)[:, None, None], (np.sin(angle) * zoom)[:, None, None]
    # Where each target pixel comes from, in a source image padded by one pixel of `fill` on every side.
    source_y = cos * y - sin * x + (height - 1) / 2 + shift[:, 0, None, None] + 1
    source_x = sin * y + cos * x + (width - 1) / 2 + shift[:, 1, None, None] + 1
    source_y, source_x = source_y.clip(0, height + 1), source_x.clip(0, width + 1)
    padded = np.empty((count, channels, height + 2, width + 2), np.float32)
    padded[:] = fill[:, None, None]
    padded[:, :, 1:-1, 1:-1] = images
    top, left = np.minimum(source_y.astype(int), height), np.minimum(source_x.astype(int), width)
    down, right = (source_y - top).astype(np.float32)[:, None], (source_x - left).astype(np.float32)[:, None]
    sample, channel = np.arange(count)[:, None, None, None], np.arange(channels)[None, :, None, None]

    def corner(dy: int, dx: int) -> np.ndarray:
        return padded[sample, channel, top[:, None] + dy, left[:, None] + dx]

    upper = corner(0, 0) * (1 - right) + corner(0, 1) * right
    lower = corner(1, 0) * (1 - right) + corner(1, 1) * right
    return upper * (1 - down) + lower * down
