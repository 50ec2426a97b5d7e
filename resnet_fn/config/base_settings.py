"""`BaseSettings` remembers which settings the user chose, and where each comes from (`Source`).

It is what `draft` needs of a `Recipe` or `RunOptions`: a module of its own, because `settings`
imports `draft`.
"""

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from resnet_fn.config.declaration import Declaration, check_names


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first.

    The user chose those of FILE and FLAG, unless a rule has changed them.
    """

    # a named recipe, a file that the user's file extends, a run that is resumed, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class BaseSettings:
    """Settings that remember which of them the user chose.

    Copies by `dataclasses.replace`, `copy` and `pickle` do not keep `chosen`. `==` ignores it.
    """

    # `chosen` is a slot, so that `vars` has the settings and nothing else.
    __slots__ = ("chosen",)
    # The settings that the user chose, and where they come from: flags, lines of the user's recipe
    # file, and keywords of the constructor. Declared here, because in `Settings` dataclass would
    # make it a field.
    chosen: dict[str, Source]
    declarations: ClassVar[dict[str, Declaration]]  # of the settings, by name

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Reject unknown names and aliases by a ValueError, and remember the keywords `given`: after
        `__init__`, which gets them next and fills in the defaults, it is not known which these were.

        Positional arguments pass here, so that `__init__` rejects them with its TypeError.
        """
        check_names(given, cls)
        chosen = dict.fromkeys(given, Source.FLAG)
        # If every setting is passed, `dataclasses.replace` may have done it, so none is chosen.
        # `changed` keeps what is chosen.
        if given.keys() == cls.declarations.keys():
            chosen = {}
        new = super().__new__(cls)
        object.__setattr__(new, "chosen", chosen)  # the class is frozen
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy` and `pickle` take: all but `chosen`. Python's default would have the
        slot, and the copy, which is frozen, would reject it.
        """
        return vars(self)


AnySettings = TypeVar("AnySettings", bound=BaseSettings)


def unchecked(settings_class: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Make a `Recipe` or `RunOptions` without checks.

    Missing settings get their defaults, and unknown names are ignored.
    """
    new = settings_class.__new__(settings_class)  # without keywords: `chosen` is empty
    for name, declared in settings_class.declarations.items():
        vars(new)[name] = values.get(name, declared.default)  # the class is frozen
    return new
