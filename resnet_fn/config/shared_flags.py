"""Flags that several commands have, and flags that are made of settings.

`add_setting_flags` makes a flag of each setting, and `settings_in` returns their values.
"""

import argparse
from collections.abc import Collection, Sequence
from typing import Any

from resnet_fn.config.cli import Parser, UsageError
from resnet_fn.config.declaration import Declaration
from resnet_fn.config.hints import hint_for_square_size
from resnet_fn.config.options import RunOptions
from resnet_fn.config.setting_names import flag_name
from resnet_fn.config.settings import Settings

# Arguments of `add_argument`.
WHICH: dict[str, Any] = {
    "choices": ("last", "best"),
    "default": "last",
    "help": "checkpoint of a run; default last",
}
ALLOW_NON_FINITE: dict[str, Any] = {
    "action": "store_true",
    "help": "accept weights with NaN or infinity",
}


def pixels(text: str) -> int:
    """Return the size of an image. `add_argument` takes this function as `type`."""
    try:
        return int(text)
    except ValueError:
        fix = hint_for_square_size(text) or "give a whole number"
        raise argparse.ArgumentTypeError(f"{text!r} is invalid; {fix}") from None


def add_checkpoint_flags(parser: Parser, positional: bool = True) -> None:
    """Add the flags that choose a trained net, and the argument RUN if `positional` is true."""
    what = "a run folder or a checkpoint folder"
    if positional:
        parser.add_argument("run", nargs="?", metavar="RUN", help=what)
        what = "run folder or checkpoint folder, in place of RUN"
    group = parser.add_argument_group("trained net")
    group.add_argument("--checkpoint", metavar="PATH", help=what)
    group.add_argument("--which", **WHICH)
    averaged = "use averaged weights; default: yes if the run has them"
    group.add_argument("--ema", action=argparse.BooleanOptionalAction, help=averaged)
    group.add_argument("--allow-non-finite", **ALLOW_NON_FINITE)


def chosen_checkpoint(parsed: argparse.Namespace) -> str:
    """Return the path that the user gave as RUN or as --checkpoint."""
    if bool(parsed.run) == bool(parsed.checkpoint):
        raise UsageError(
            "give either RUN or --checkpoint RUN, where RUN is a run folder or a checkpoint folder"
        )
    return parsed.run or parsed.checkpoint


def add_device_flags(parser: Parser) -> argparse._ArgumentGroup:
    """Add the flags --device and --threads, and return their argument group."""
    group = parser.add_argument_group("device")
    device = RunOptions.declarations["device"]
    group.add_argument(
        "--device",
        choices=device.choices,
        default=device.default,
        help=f"{device.meaning}; default {device.default}",
    )
    group.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="CPU kernel threads; default 0: all CPUs",
    )
    return group


def add_setting_flags(
    parser: Parser,
    *configs: Settings,
    skip: Collection[str],
    first: Sequence[str] = (),
    shown: Collection[str] = (),
    heading: str = "",
) -> None:
    """Add a flag for each setting of `configs` (a recipe, options or both), except the settings in
    `skip`.

    The help shows the values in `configs`. The settings in `first` are listed first. If `shown` is
    not empty, the help lists only the settings in `shown`. If `heading` is not empty, it replaces
    the titles of the settings' groups. A flag that the user does not give is absent from the parsed
    namespace.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    settings = [
        (declared, getattr(config, name))
        for config in configs
        for name, declared in config.declarations.items()
        if name not in skip
    ]
    order = {name: index for index, name in enumerate(first)}
    settings.sort(key=lambda pair: order.get(pair[0].name, len(order)))
    for declared, value in settings:
        name = declared.name
        title = heading or ("most used" if name in first else declared.group)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        text = argparse.SUPPRESS
        if not shown or name in shown:
            # ArgumentParser replaces %(default)s and the like
            text = declared.explain(value).replace("%", "%%")
        arguments = _arguments_of(declared)
        groups[title].add_argument(f"--{flag_name(name)}", **arguments, help=text)
        for alias in declared.aliases:
            parser.add_argument(f"--{alias}", **arguments, help=argparse.SUPPRESS)


def _arguments_of(declared: Declaration) -> dict[str, Any]:
    """Return the arguments of `add_argument` that follow from a setting's type."""
    arguments = {"default": argparse.SUPPRESS, "dest": declared.name}
    if isinstance(declared.default, bool) or declared.is_yes_no_auto:
        return {**arguments, "action": argparse.BooleanOptionalAction}
    metavar = {int: "N", float: "X", tuple: "X,X"}.get(type(declared.default), "NAME")
    return {**arguments, "type": declared.parse, "metavar": metavar}


def settings_in(parsed: argparse.Namespace, *settings_classes: type[Settings]) -> dict[str, Any]:
    """Return the parsed values of the settings of `settings_classes`."""
    known = {name for settings_class in settings_classes for name in settings_class.declarations}
    return {name: value for name, value in vars(parsed).items() if name in known}
