"""This module defines what `draft.Draft` and `settings.Settings` share, because `settings` imports
`draft`: where a value comes from (`Source`), what recipe and options keep besides their values
(`BaseSettings`), and how they are made without checks.
"""

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from resnet_fn.config.declaration import Declaration


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first.

    The user chose those of FILE and FLAG, unless a rule has changed them.
    """

    # a named recipe, a file that the user's file extends, a run that resumes, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class BaseSettings:
    """What a draft reads of a `Recipe` or `RunOptions`, and sets when it makes one."""

    # `chosen` is a slot, so that `vars` has the settings and nothing else.
    __slots__ = ("chosen",)
    # The settings that the user chose, and where they come from: flags, lines of the user's recipe
    # file, and keywords of the constructor. Declared here, because in `Settings` dataclass would
    # make it a field.
    chosen: dict[str, Source]
    declarations: ClassVar[dict[str, Declaration]]  # of the settings, by name


AnySettings = TypeVar("AnySettings", bound=BaseSettings)


def unchecked(settings_class: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Make a `Recipe` or `RunOptions` without checks.

    Missing settings get their defaults, and unknown names are ignored.
    """
    new = settings_class.__new__(settings_class)  # which chooses nothing
    for name, declared in settings_class.declarations.items():
        vars(new)[name] = values.get(name, declared.default)  # the class is frozen
    return new
