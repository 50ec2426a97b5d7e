"""`BaseSettings` is what `draft` needs of a `Recipe` or `RunOptions`, because `settings` imports
`draft`: the settings that the user chose, and where each comes from (`Source`).
"""

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from resnet_fn.config.declaration import Declaration, check_names


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first.

    The user chose those of FILE and FLAG, unless a rule has changed them.
    """

    # a named recipe, a file that the user's file extends, a run that resumes, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class BaseSettings:
    """Settings that remember which of them the user chose.

    Copies by `dataclasses.replace`, `copy` and `pickle` have forgotten it.
    """

    # `chosen` is a slot, so that `vars` has the settings and nothing else.
    __slots__ = ("chosen",)
    # The settings that the user chose, and where they come from: flags, lines of the user's recipe
    # file, and keywords of the constructor. Declared here, because in `Settings` dataclass would
    # make it a field.
    chosen: dict[str, Source]
    declarations: ClassVar[dict[str, Declaration]]  # of the settings, by name

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Make an instance, and remember the keywords `given`, because `__init__`, which gets them
        next, only sets attributes.

        Positional arguments pass here, so that `__init__` rejects them with its TypeError.
        """
        check_names(given, cls)
        chosen = dict.fromkeys(given, Source.FLAG)
        if given.keys() == cls.declarations.keys():
            chosen = {}  # `dataclasses.replace` passes all settings, whoever chose them
        new = super().__new__(cls)
        object.__setattr__(new, "chosen", chosen)  # the class is frozen
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy` and `pickle` take: all but `chosen`, so that a copy chooses nothing."""
        return vars(self)


AnySettings = TypeVar("AnySettings", bound=BaseSettings)


def unchecked(settings_class: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Make a `Recipe` or `RunOptions` without checks.

    Missing settings get their defaults, and unknown names are ignored.
    """
    new = settings_class.__new__(settings_class)  # which chooses nothing
    for name, declared in settings_class.declarations.items():
        vars(new)[name] = values.get(name, declared.default)  # the class is frozen
    return new
