"""`OPTIMIZERS` lists the optimizers: which settings they read, and what is true of each."""

from collections.abc import Mapping
from typing import NamedTuple


class Traits(NamedTuple):
    """A row of `OPTIMIZERS`."""

    title: str  # the name, in lower and upper case
    # Settings that it reads besides momentum and weight decay. Its function takes them in this
    # order after the groups and the momentum.
    settings: tuple[str, ...]
    zeros: Mapping[str, float] = {}  # its values of settings that are 0 in the recipe
    defaults: Mapping[str, float] = {}  # its values of settings that nobody chose with it
    # whether a weight's new value depends on no other weight, so that `vectors.py` may join them
    elementwise: bool = True
    # the usual learning rate of one that moves each weight by about the learning rate; else 0
    usual_rate: float = 0.0
    without_decay: str = ""  # what it computes in layers without weight decay, if that differs


_MOMENTS = ("beta2", "epsilon")
OPTIMIZERS = {
    "sgd": Traits("SGD", ("nesterov",)),
    "adam": Traits("Adam", _MOMENTS, {"epsilon": 1e-8}, usual_rate=1e-3),
    "adamw": Traits("AdamW", _MOMENTS, {"epsilon": 1e-8}, usual_rate=1e-3),
    "lars": Traits("LARS", ("trust_coefficient",), elementwise=False, without_decay="SGD"),
    "lamb": Traits("LAMB", _MOMENTS, {"epsilon": 1e-6}, elementwise=False, without_decay="Adam"),
    "lion": Traits("Lion", ("beta2",), defaults={"beta2": 0.99}, usual_rate=1e-4),
}


def users(setting: str, joint: str = "and") -> str:
    """Return which optimizers read a setting, such as "Adam, AdamW and LAMB"."""
    *others, last = (row.title for row in OPTIMIZERS.values() if setting in row.settings)
    return f"{', '.join(others)} {joint} {last}" if others else last
