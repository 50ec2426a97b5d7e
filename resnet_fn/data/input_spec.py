"""The input of a net. The data set defines it, every checkpoint stores it, and evaluation and prediction read it."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from resnet_fn.config.hints import few


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The classes and images that a net is for.

    Attributes:
        name: the data set's.
        classes: their names; a label, and a logit's place, is an index into them.
        channels: of an image.
        image_size: height and width of an image in evaluation, pixels.
        eval_resize: shorter side of an image before its centre is cut, pixels; 0: the whole image is resized.
        data_dir: the set's folder, absolute; "": it needs none.
        train_list, val_list: the lists that name its images, absolute; "": the images of its folders.
        full_scale: the pixel value that becomes 1.
        mean, std: per channel, of the training pixels divided by full_scale.
    """

    name: str
    classes: tuple[str, ...]
    channels: int
    image_size: int
    eval_resize: int = 0
    data_dir: str = ""
    train_list: str = ""
    val_list: str = ""
    full_scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and std as float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    def for_image_files(self) -> "InputSpec":
        """Return the same input for 8-bit image files, whose full scale is always 255."""
        return dataclasses.replace(self, full_scale=255.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, for a checkpoint's "dataset"."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "InputSpec":
        """Rebuild an input from JSON types; absent fields take their default."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
        return cls(**values)


def renamed(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe which names have changed; "" if none has."""
    return few([f"{old!r} → {new!r}" for old, new in zip_longest(before, now) if old != new])
