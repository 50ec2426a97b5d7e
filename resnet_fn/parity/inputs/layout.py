"""Where an array has its channels, and one form of it for comparisons."""

import dataclasses

import numpy as np

CHW, HWC, HW = "CHW", "HWC", "HW"
_CHANNELS = (1, 3, 4)


@dataclasses.dataclass(frozen=True)
class Planes:
    """A prepared picture in one form, float64 [H, W, C]."""

    pixels: np.ndarray
    layout: str  # of the array: CHW, HWC or HW
    batched: bool  # whether the array has a leading axis of one sample
    dtype: str

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]

    @property
    def has_texture(self) -> bool:
        """Whether the picture varies enough to show how it was resized."""
        spread = self.pixels.std((0, 1)).max()
        largest = np.abs(self.pixels).max()
        return bool(spread > 1e-3 * largest) and min(self.size) > 3

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.pixels.shape[2]


def planes_of(array: np.ndarray) -> Planes | None:
    """Return an array's planes, or None if it is not one picture."""
    batched = array.ndim == 4 and len(array) == 1
    image = array[0] if batched else array
    if image.ndim == 2:
        pixels, layout = image[:, :, None], HW
    elif image.ndim == 3 and image.shape[0] in _CHANNELS:
        pixels, layout = image.transpose(1, 2, 0), CHW
    elif image.ndim == 3 and image.shape[2] in _CHANNELS:
        pixels, layout = image, HWC
    else:
        return None
    return Planes(pixels.astype(np.float64), layout, batched, str(array.dtype))
