"""A flag for each setting of a dataclass, and the settings that were given as flags."""

import argparse
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from resnet_fn.config.fields import GROUPS, YES_NO_AUTO, flag_name, show_value


def add_fields(parser: argparse.ArgumentParser, config: Any, skip: Iterable[str] = ()) -> None:
    """Add one flag for each setting of a dataclass, in the groups that they name.

    Flags that are not given do not appear in the parsed namespace, so that a recipe's own values stay.

    Args:
        parser: gets the flags.
        config: the dataclass, or an instance whose values the help shows, a * at those that are its own.
        skip: settings that get none.
    """
    fields = [field for field in dataclasses.fields(config) if field.name not in skip]
    there = {field.metadata["group"] for field in fields}
    groups = {name: parser.add_argument_group(name) for name in GROUPS if name in there}
    for field in fields:
        told = field.metadata
        named = [choice for choice in told["choices"] if choice and told["choices"] != YES_NO_AUTO]
        choices = f" ({', '.join(named)})" if named else ""
        unit = f" [{told['unit']}]" if told["unit"] else ""
        value = getattr(config, field.name)  # of a dataclass itself: the field's default
        own = "*" if value != field.default else ""
        default = f"; default {show_value(value) or 'none'}{own}" if show_value(value) or own else ""
        also = "; also --" + ", --".join(told["aliases"]) if told["aliases"] else ""
        options: dict[str, Any] = {
            "help": f"{told['meaning']}{choices}{unit}{default}{also}",
            "default": argparse.SUPPRESS,
            "dest": field.name,
        }
        if told["choices"] == YES_NO_AUTO:
            pass  # two flags of no value
        elif isinstance(field.default, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = _converter(type(field.default))
            options["metavar"] = {int: "N", float: "X", tuple: "X,X"}.get(type(field.default), "NAME")
        group, flag = groups[told["group"]], flag_name(field.name)
        if told["choices"] == YES_NO_AUTO:
            group.add_argument(f"--{flag}", action="store_const", const="yes", **options)
            group.add_argument(f"--no-{flag}", action="store_const", const="no", **options | {"help": "never"})
            continue
        group.add_argument(f"--{flag}", **options)
        for alias in told["aliases"]:
            parser.add_argument(f"--{alias}", **options | {"help": argparse.SUPPRESS})


def _converter(wanted: type) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            if wanted is tuple:
                return tuple(float(part) for part in text.split(",") if part)
            return wanted(text)
        except ValueError:
            return text  # refused with all that is wrong with the settings, see `faults`

    return convert


def settings_in(parsed: argparse.Namespace, dataclass: type) -> dict[str, Any]:
    """The fields of `dataclass` that were given as flags."""
    names = {field.name for field in dataclasses.fields(dataclass)}
    return {name: value for name, value in vars(parsed).items() if name in names}
