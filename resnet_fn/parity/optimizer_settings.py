"""Read the settings of both optimizers for each parameter, and compare the settings."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from resnet_fn.parity.layers.difference import DIFFERS, Difference, difference
from resnet_fn.parity.name_map import NameMap

Settings = dict[str, dict[str, float]]  # name of the setting → name of the parameter → number

RATE, DECAY = "learning rate", "weight decay"
# The frameworks' names of settings → our names. Torch's `betas` are read as beta1 and beta2.
_WORDS = {
    **{"lr": RATE, "weight_decay": DECAY, "beta1": "β1", "beta2": "β2", "alpha": "α", "decay": "α"},
    **dict.fromkeys(("eps", "epsilon"), "eps"),
    **dict.fromkeys(("nesterov", "use_nesterov"), "nesterov"),
    **dict.fromkeys(("amsgrad", "use_amsgrad"), "amsgrad"),
    **{word: word for word in ("momentum", "dampening", "centered", "maximize")},
    "decoupled_weight_decay": "decoupled weight decay",
}
_SAME = 1e-6  # relative: MindSpore keeps numbers in float32


def torch_settings(groups: Iterable[Mapping[str, Any]], names: Mapping[int, str]) -> Settings:
    """Return the settings of a torch optimizer.

    `names` maps the `id()` of a parameter to its name.
    """
    settings: Settings = {}
    for group in groups:
        trained = [names[id(one)] for one in group["params"] if id(one) in names]
        numbers = {**group, **dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))}
        for key in [key for key in numbers if key in _WORDS]:
            settings.setdefault(_WORDS[key], {}).update(dict.fromkeys(trained, float(numbers[key])))
    return settings


def mindspore_settings(optimizer: Any, names: Mapping[int, str]) -> Settings:
    """Return the settings of a MindSpore `nn.Optimizer`.

    `names` maps the `id()` of a parameter to its name.
    """
    count = len(optimizer.parameters)

    def of_each(values: Any) -> Iterable[float]:
        spread = values if isinstance(values, tuple) else (values,) * count
        return (
            float(value.numpy().item() if hasattr(value, "numpy") else value) for value in spread
        )

    values = {RATE: of_each(optimizer.learning_rate)}
    if not optimizer.dynamic_weight_decay:
        # Without groups, MindSpore does not decay parameters named gamma and beta.
        pairs = zip(of_each(optimizer.weight_decay), optimizer.decay_flags, strict=True)
        values[DECAY] = (decay if applies else 0.0 for decay, applies in pairs)
    others = [
        key for key in _WORDS if key not in ("lr", "weight_decay") and hasattr(optimizer, key)
    ]
    values |= {_WORDS[key]: of_each(getattr(optimizer, key)) for key in others}
    order = [names[id(parameter)] for parameter in optimizer.parameters]
    return {word: dict(zip(order, numbers, strict=True)) for word, numbers in values.items()}


def compare_settings(
    ours: Settings, theirs: Settings, names: NameMap
) -> tuple[list[Difference], list[str]]:
    """Compare the settings of both optimizers.

    Returns all comparisons, and lines about settings that differ.
    """
    differences: list[Difference] = []
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names.parameters if RATE in ours and RATE in theirs else ():
        updates = [
            name in ours[RATE],
            any(source in theirs[RATE] for source in names.sources(name)),
        ]
        if updates[0] != updates[1]:
            differences.append(difference(f"whether {name} is updated", *updates))
            groups[
                f"updated by the optimizer {'here' if updates[0] else 'in the reference'} only"
            ].append(name)
    for word in [word for word in ours if word in theirs]:
        for name, here in ours[word].items():
            for there in {
                theirs[word][source] for source in names.sources(name) if source in theirs[word]
            }:
                differences.append(difference(f"{word} of {name}", here, there, tolerance=_SAME))
                if differences[-1].verdict == DIFFERS:
                    groups[f"{word}: {here:.6g} here, {there:.6g} in the reference"].append(name)
    return differences, [
        f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()
    ]


def paired(numbers: Mapping[str, float], names: NameMap) -> dict[str, float]:
    """Map our parameters to a setting of the reference.

    Parameters with no number or several numbers are left out.
    """
    given = {
        name: {numbers[one] for one in names.sources(name) if one in numbers}
        for name in names.parameters
    }
    return {name: values.pop() for name, values in given.items() if len(values) == 1}
