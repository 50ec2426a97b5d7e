"""`InputSpec` describes a net's input: a data set defines it, checkpoints store it, and evaluation reads it."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from resnet_fn.config.hints import few


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Describes the classes of a net and the images that it expects."""

    name: str  # name of the data set
    classes: tuple[str, ...]  # class names, in the order of labels and logits
    channels: int
    image_size: int  # height and width of an image in evaluation, pixels
    eval_resize: int = 0  # shorter side of an image before the centre crop, pixels; 0: resize without a crop
    data_dir: str = ""  # absolute path of the data set's folder; "" for sets without a folder
    train_list: str = ""  # absolute path of the file that lists the training images; "" if folders give them
    val_list: str = ""  # absolute path of the file that lists the validation images; "" if folders give them
    full_scale: float  # pixels are divided by it
    mean: tuple[float, ...]  # mean of each channel over the training pixels / full_scale
    std: tuple[float, ...]  # standard deviation of each channel, likewise

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation as float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, for the entry "dataset" of a checkpoint's state.json."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "InputSpec":
        """Make an `InputSpec` from JSON types; absent fields get their default."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
        return cls(**values)


def renamed(before: Sequence[str], now: Sequence[str]) -> str:
    """Return the first changed class names as text, "'a' → 'b', …"; "" if all are equal."""
    return few([f"{old!r} → {new!r}" for old, new in zip_longest(before, now) if old != new])
