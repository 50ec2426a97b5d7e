"""This module imports packages that only some commands need."""

import importlib
from typing import Any

from resnet_fn.config.packages import how_to_install
from resnet_fn.config.wording import first_line


def import_extra(module: str, purpose: str) -> Any:
    """Import a package that only some commands need.

    `purpose` begins the error message, as in "writing .pth files".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            raise ValueError(f"{purpose} needs {module}; {how_to_install(module)}") from None
        # A package or a library that an installed package needs is missing or too old.
        raise ValueError(
            f"{purpose} needs {module}, which cannot be imported ({first_line(error)}); "
            f"install it again: {how_to_install(module)}"
        ) from None
