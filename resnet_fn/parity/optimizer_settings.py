"""An optimizer's settings, parameter by parameter, in words that both frameworks share; and how two of them differ.

The ladder sets both sides' learning rates, and weight decay or momentum may be too small to show in a few updates.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from resnet_fn.layers.difference import DIFFERS, Difference, difference
from resnet_fn.parity.name_map import NameMap

Settings = dict[str, dict[str, float]]  # word: parameter: number

RATE, DECAY = "learning rate", "weight decay"
_WORDS = {"lr": RATE, "weight_decay": DECAY, "momentum": "momentum", "dampening": "dampening"}
_SAME = 1e-6  # relative: MindSpore keeps numbers in float32
# What the optimizers of both frameworks call their state, and what we call it.
STATES = {
    **dict.fromkeys(
        ("momentum_buffer", "momentum_buf", "exp_avg", "moments", "accum", "moment1", "adam_m", "lamb_m"), "momentum"
    ),
    **dict.fromkeys(("exp_avg_sq", "moment2", "adam_v", "lamb_v"), "variance"),
    **dict.fromkeys(("square_avg", "mean_square"), "mean square"),
    **dict.fromkeys(("grad_avg", "mean_grad"), "mean gradient"),
}


def torch_settings(groups: Iterable[Mapping[str, Any]], names: Mapping[int, str]) -> Settings:
    """The settings in a torch optimizer's parameter groups; `names` has the id of each parameter."""
    settings: Settings = {}
    for group in groups:
        trained = [names[id(one)] for one in group["params"] if id(one) in names]
        for key in _WORDS.keys() & group.keys():
            settings.setdefault(_WORDS[key], {}).update(dict.fromkeys(trained, float(group[key])))
    return settings


def mindspore_settings(optimizer: Any, names: Mapping[int, str]) -> Settings:
    """The settings of an `nn.Optimizer`. Without groups, its parameters named gamma and beta get no weight decay."""
    count = len(optimizer.parameters)

    def of_each(values: Any) -> Iterable[float]:
        spread = values if isinstance(values, tuple) else (values,) * count
        return (float(value.asnumpy() if hasattr(value, "asnumpy") else value) for value in spread)

    values = {RATE: of_each(optimizer.learning_rate)}
    if not optimizer.dynamic_weight_decay:
        pairs = zip(of_each(optimizer.weight_decay), optimizer.decay_flags, strict=True)
        values[DECAY] = (decay if applies else 0.0 for decay, applies in pairs)
    if hasattr(optimizer, "momentum"):
        values |= {"momentum": of_each(optimizer.momentum), "dampening": of_each(getattr(optimizer, "dampening", 0.0))}
    order = [names[id(parameter)] for parameter in optimizer.parameters]
    return {word: dict(zip(order, numbers, strict=True)) for word, numbers in values.items()}


def compare_settings(ours: Settings, theirs: Settings, names: NameMap) -> tuple[list[Difference], list[str]]:
    """Every number that both sides have for a parameter, and those that differ in words."""
    differences: list[Difference] = []
    groups: dict[str, list[str]] = defaultdict(list)
    for word in [word for word in ours if word in theirs]:
        for name, here in ours[word].items():
            for there in {theirs[word][source] for source in names.sources(name) if source in theirs[word]}:
                differences.append(difference(f"{word} of {name}", here, there, tolerance=_SAME))
                if differences[-1].verdict == DIFFERS:
                    groups[f"{word}: {here:.6g} here, {there:.6g} in the reference"].append(name)
    return differences, [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]


def paired_decays(theirs: Settings, names: NameMap) -> dict[str, float]:
    """The reference's weight decay of each of our parameters; those whose parts differ in it are left out."""
    given = theirs.get(DECAY, {})
    decays = {name: {given[source] for source in names.sources(name) if source in given} for name in names.parameters}
    return {name: values.pop() for name, values in decays.items() if len(values) == 1}
