"""`OPTIMIZERS` lists the optimizers: which settings they read, and what is true of each.

The choices of --optimizer, the help, the rules, the warnings and the ladder's flags are made from
this table.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Traits(NamedTuple):
    """A row of `OPTIMIZERS`."""

    title: str  # the name, in lower and upper case
    # Settings that it reads besides momentum and weight decay. Its function takes them by name, in
    # any order.
    settings: tuple[str, ...]
    # Its own defaults of these settings are one of two kinds: the recipe keeps 0, and the optimizer
    # gets this value instead; or the recipe itself gets this value, if the user chose no other.
    for_zero: Mapping[str, float] = {}
    unless_chosen: Mapping[str, float] = {}
    # whether a weight's new value depends on no other weight, so that `vectors.py` may join them
    elementwise: bool = True
    # the usual learning rate of one that moves each weight by about the learning rate; else 0
    usual_rate: float = 0.0
    without_decay: str = ""  # what it computes in layers without weight decay, if that differs


_MOMENTS = ("beta2", "epsilon")
OPTIMIZERS = {
    "sgd": Traits("SGD", ("nesterov",)),
    "adam": Traits(
        "Adam",
        _MOMENTS,
        for_zero={"epsilon": 1e-8},
        usual_rate=1e-3,
    ),
    "adamw": Traits(
        "AdamW",
        _MOMENTS,
        for_zero={"epsilon": 1e-8},
        usual_rate=1e-3,
    ),
    "lars": Traits(
        "LARS",
        ("trust_coefficient",),
        elementwise=False,
        without_decay="SGD",
    ),
    "lamb": Traits(
        "LAMB",
        _MOMENTS,
        for_zero={"epsilon": 1e-6},
        elementwise=False,
        without_decay="Adam",
    ),
    "lion": Traits(
        "Lion",
        ("beta2",),
        unless_chosen={"beta2": 0.99},
        usual_rate=1e-4,
    ),
}
# All settings that some optimizer reads, each once.
OPTIMIZER_SETTINGS = tuple(
    dict.fromkeys(name for row in OPTIMIZERS.values() for name in row.settings)
)


def optimizer_settings(optimizer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `settings` that an optimizer reads, with its own values in place of 0.

    For example, `optimizer_settings("lamb", vars(recipe))` is {"beta2": 0.999, "epsilon": 1e-06}.
    """
    row = OPTIMIZERS[optimizer]
    values = {}
    for name in row.settings:
        value = settings[name]
        values[name] = value or row.for_zero.get(name, value)
    return values


def users(setting: str, joint: str = "and") -> str:
    """Return which optimizers read a setting, such as "Adam, AdamW and LAMB"."""
    *others, last = (row.title for row in OPTIMIZERS.values() if setting in row.settings)
    return f"{', '.join(others)} {joint} {last}" if others else last
