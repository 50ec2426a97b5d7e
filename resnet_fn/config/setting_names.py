"""Names of settings: which there are, what is wrong with others, and the flags made of them."""

from collections.abc import Collection, Iterable, Mapping

from resnet_fn.config.declaration import Declaration
from resnet_fn.config.foreign_flags import advice_on_setting
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.values import NOTHING


def all_names(declarations: Mapping[str, Declaration]) -> dict[str, str]:
    """Map each name and alias of a setting to the setting's name, for example "lr" to
    "learning_rate".
    """
    names = {}
    for name, declared in declarations.items():
        names[name] = name
        for alias in declared.aliases:
            names[setting_name(alias)] = name
    return names


def check_names(
    names: Iterable[str],
    declarations: Mapping[str, Declaration],
    *,
    caller: str,
    useless: Collection[str] = (),
    classes: Mapping[str, str] = NOTHING,
) -> None:
    """Raise a ValueError, which starts with `caller`, that lists those of `names` which are no
    settings. An alias is none, because only flags and recipe files may use it.

    The hints name none of the settings in `useless`. A setting of another class is one by
    `classes`, which maps settings to the names of their classes.
    """
    known = all_names(declarations)
    useful = {word: name for word, name in known.items() if name not in useless}
    faults = []
    for name in names:
        if name not in declarations:
            hint = (
                f"it is a setting of {classes[name]}"
                if name in classes
                else hint_for_setting(name, useful)
            )
            faults.append(f"{caller}: unknown setting {name!r}; {hint}")
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


def setting_name(flag: str) -> str:
    """Return the setting's name of a flag without the leading dashes."""
    return flag.replace("-", "_")
