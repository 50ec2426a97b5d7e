"""`OPTIMIZERS` lists the optimizers: which settings they read, and what is true of each.

The choices of --optimizer, most of their help, the rules, the warnings and the ladder's flags are
made from this table.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Traits(NamedTuple):
    """A row of `OPTIMIZERS`."""

    title: str  # the name as messages write it; its lower case is the row's key
    # Settings that it reads besides momentum and weight decay. Its function takes them by name, in
    # any order.
    settings: tuple[str, ...]
    # whether a weight's new value depends on no other weight, so that `vectors.py` may join them
    elementwise: bool
    # whether an update's size may be independent of the gradient's size, so that a gradient that is
    # only rounding moves a weight
    adaptive: bool
    # what 0, the default of settings that several optimizers read, means for this one: an epsilon
    # of 0 is 1e-8 for Adam, and a beta2 of 0 is 0.99 for Lion
    value_if_zero: Mapping[str, float] = {}
    # the usual learning rate of one that moves each weight by about the learning rate; else 0
    usual_rate: float = 0.0
    name_without_decay: str = ""  # what it is in layers without weight decay, if that differs


_MOMENTS = ("beta2", "epsilon")
_ADAM = Traits(
    "Adam",
    _MOMENTS,
    elementwise=True,
    adaptive=True,
    value_if_zero={"beta2": 0.999, "epsilon": 1e-8},
    usual_rate=1e-3,
)
OPTIMIZERS = {
    "sgd": Traits("SGD", ("nesterov",), elementwise=True, adaptive=False),
    "adam": _ADAM,
    "adamw": _ADAM._replace(title="AdamW"),
    "lars": Traits(
        "LARS",
        ("trust_coefficient",),
        elementwise=False,
        adaptive=True,
        name_without_decay="SGD",
    ),
    "lamb": Traits(
        "LAMB",
        _MOMENTS,
        elementwise=False,
        adaptive=True,
        value_if_zero={"beta2": 0.999, "epsilon": 1e-6},
        name_without_decay="Adam",
    ),
    "lion": Traits(
        "Lion",
        ("beta2",),
        elementwise=True,
        adaptive=True,
        value_if_zero={"beta2": 0.99},
        usual_rate=1e-4,
    ),
}
# All settings that some optimizer reads, each once.
OPTIMIZER_SETTINGS = tuple(
    dict.fromkeys(name for row in OPTIMIZERS.values() for name in row.settings)
)


def settings_read_by(optimizer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `settings` that an optimizer reads, with its `value_if_zero` in place of 0.

    For example, `settings_read_by("lamb", vars(recipe))` is {"beta2": 0.999, "epsilon": 1e-06}.
    """
    row = OPTIMIZERS[optimizer]
    values = {}
    for name in row.settings:
        value = settings[name]
        values[name] = value or row.value_if_zero.get(name, value)
    return values


def optimizers_reading(setting: str, joint: str = "and") -> str:
    """Return the titles of the optimizers that read a setting, as "Adam, AdamW and LAMB"."""
    *others, last = (row.title for row in OPTIMIZERS.values() if setting in row.settings)
    return f"{', '.join(others)} {joint} {last}" if others else last


def explain_zero(setting: str) -> str:
    """Return what 0 means for a setting: the first optimizer's value, and those of optimizers with
    another one, as "1e-8 (LAMB: 1e-6)".
    """
    texts = {
        row.title: f"{row.value_if_zero[setting]:g}".replace("e-0", "e-")
        for row in OPTIMIZERS.values()
        if setting in row.value_if_zero
    }
    usual = next(iter(texts.values()))
    others = [f"{title}: {text}" for title, text in texts.items() if text != usual]
    return f"{usual} ({', '.join(others)})" if others else usual
