"""This module describes the input of a net.

Checkpoints contain this description, for example for `load_run`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, get_args, get_origin

import numpy as np

from resnet_fn.config.hints import few


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Describes the classes and the input images of a net."""

    name: str  # name of the data set
    classes: tuple[str, ...]  # class names, in the order of labels and logits
    channels: int
    image_size: int  # height and width of an image in evaluation, in pixels
    # shorter side of an image before the centre crop, in pixels, or 0 to resize without a crop
    eval_resize: int = 0
    interpolation: str = "bilinear"  # filter that resizes an image in evaluation, named as in timm
    data_dir: str = ""  # absolute path of the data set's folder, or "" for sets without a folder
    train_list: str = ""  # absolute path of the list of training images, or "" without a list
    val_list: str = ""  # absolute path of the list of validation images, or "" without a list
    full_scale: float  # divisor of the pixel values
    mean: tuple[float, ...]  # mean of (pixel / full_scale) for each channel
    std: tuple[float, ...]  # standard deviation of (pixel / full_scale) for each channel

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation of each channel, as two float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "InputSpec":
        """Make an `InputSpec` from the dict that `config.fields.to_dict` returns.

        Optional fields may be absent. Raises TypeError or ValueError if a field is missing,
        unknown or invalid.
        """
        values: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()
        }
        spec = cls(**values)
        for field in dataclasses.fields(cls):
            value = getattr(spec, field.name)
            if not _has_type(value, field.type):
                raise ValueError(f"{field.name}: {value!r} is not valid")
        if (
            len(spec.mean) != spec.channels
            or len(spec.std) != spec.channels
            or 0 in (*spec.std, spec.full_scale)
        ):
            raise ValueError("channels, mean, std, full_scale: these values do not fit together")
        return spec


def _has_type(value: Any, declared: Any) -> bool:
    """Return whether `value` has the declared type of a field, and is not negative if an int."""
    if get_origin(declared) is tuple:
        return isinstance(value, tuple) and all(
            _has_type(item, get_args(declared)[0]) for item in value
        )
    if declared is float:
        return type(value) in (int, float)
    return type(value) is declared and (declared is not int or value >= 0)


def renamed(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe the first class names that differ, for example "'cat' → 'dog'".

    Return "" if all are equal.
    """
    return few([f"{old!r} → {new!r}" for old, new in zip_longest(before, now) if old != new])
