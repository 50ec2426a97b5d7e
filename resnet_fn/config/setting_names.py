"""Names of settings: which there are, what is wrong with others, and the flags made of them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from resnet_fn.config.foreign_flags import advice_on_setting
from resnet_fn.config.hints import suggest_name


def all_names(*settings_classes: Any) -> dict[str, str]:
    """Map each name and alias of a setting to the setting's name, for example "lr" to
    "learning_rate".
    """
    names = {}
    for settings_class in settings_classes:
        for name, declared in settings_class.declarations.items():
            names[name] = name
            for alias in declared.aliases:
                names[alias.replace("-", "_")] = name
    return names


def check_names(
    names: Iterable[str],
    *settings_classes: Any,
    caller: str = "",
    useless: Collection[str] = (),
) -> None:
    """Raise a ValueError that lists those of `names` which are no settings of `settings_classes`.
    An alias is none, because only flags and recipe files may use it.

    The error starts with `caller`, by default the first class. Its hints name none of the settings
    in `useless`.
    """
    known = all_names(*settings_classes)
    useful = {word: name for word, name in known.items() if name not in useless}
    caller = caller or settings_classes[0].__name__.lower()
    faults = [
        f"{caller}: unknown setting {name!r}; {hint_for_setting(name, useful)}"
        for name in names
        if known.get(name) != name
    ]
    if faults:
        raise ValueError("; ".join(faults))


def hint_for_setting(word: str, known: Mapping[str, str]) -> str:
    """Return a hint about an unknown setting. `known` is the result of `all_names`, or a part of
    it.
    """
    if word in known:  # an alias
        return f"did you mean {known[word]}?"
    return advice_on_setting(word, known) or suggest_name(word, sorted(set(known.values())))


def flag_name(name: str) -> str:
    """Return a setting's flag without the leading dashes."""
    return name.replace("_", "-")
