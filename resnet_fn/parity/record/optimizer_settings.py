"""Read the settings of an optimizer for each parameter."""

from collections.abc import Iterable, Mapping
from typing import Any

from resnet_fn.parity.trace.data import DECAY_SETTING, RATE_SETTING, ParameterSettings

# The frameworks' names of settings → the names that both sides share. Torch's `betas` are read as
# beta1 and beta2.
_WORDS = {
    "lr": RATE_SETTING,
    "weight_decay": DECAY_SETTING,
    "beta1": "β1",
    "beta2": "β2",
    "alpha": "α",
    "decay": "α",
    "eps": "eps",
    "epsilon": "eps",
    "nesterov": "nesterov",
    "use_nesterov": "nesterov",
    "amsgrad": "amsgrad",
    "use_amsgrad": "amsgrad",
    "momentum": "momentum",
    "dampening": "dampening",
    "centered": "centered",
    "maximize": "maximize",
    "decoupled_weight_decay": "decoupled weight decay",
}


def torch_settings(
    groups: Iterable[Mapping[str, Any]], names: Mapping[int, str]
) -> ParameterSettings:
    """Return the settings of a torch optimizer.

    `names` maps the `id()` of a parameter to its name.
    """
    settings: ParameterSettings = {}
    for group in groups:
        trained = [names[id(parameter)] for parameter in group["params"] if id(parameter) in names]
        betas = zip(("beta1", "beta2"), group.get("betas", ()), strict=False)
        for key, value in {**group, **dict(betas)}.items():
            number = _number(value) if key in _WORDS else None
            if number is None:
                continue
            of_parameter = settings.setdefault(_WORDS[key], {})
            for name in trained:
                of_parameter[name] = number
    return settings


def _number(value: Any) -> float | None:
    """Return a setting as a number, or None for what is none, such as the two eps of Adafactor."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def mindspore_settings(optimizer: Any, names: Mapping[int, str]) -> ParameterSettings:
    """Return the settings of a MindSpore `nn.Optimizer`.

    `names` maps the `id()` of a parameter to its name.
    """
    count = len(optimizer.parameters)

    def of_each(values: Any) -> Iterable[float]:
        spread = values if isinstance(values, tuple) else (values,) * count
        return (
            float(value.numpy().item() if hasattr(value, "numpy") else value) for value in spread
        )

    values = {RATE_SETTING: of_each(optimizer.learning_rate)}
    if not optimizer.dynamic_weight_decay:
        # Without groups, MindSpore does not decay parameters named gamma and beta.
        pairs = zip(of_each(optimizer.weight_decay), optimizer.decay_flags, strict=True)
        values[DECAY_SETTING] = (decay if applies else 0.0 for decay, applies in pairs)
    for key, word in _WORDS.items():
        if key not in ("lr", "weight_decay") and hasattr(optimizer, key):
            values[word] = of_each(getattr(optimizer, key))
    order = [names[id(parameter)] for parameter in optimizer.parameters]
    return {word: dict(zip(order, numbers, strict=True)) for word, numbers in values.items()}
