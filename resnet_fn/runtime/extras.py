"""This module imports packages that only some commands need."""

import importlib
from typing import Any

from resnet_fn.config.hints import first_line
from resnet_fn.config.packages import how_to_install


def import_extra(module: str, purpose: str) -> Any:
    """Import a package that only some commands need. `purpose` begins the error message, as in "writing .pth files"."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ValueError(f"{purpose} needs {module}; {how_to_install(module)}") from None
    except ImportError as error:  # a library of an installed package is missing or too old
        fault = f"{purpose} needs {module}, which cannot be imported ({first_line(error)})"
        raise ValueError(f"{fault}; install it again: {how_to_install(module)}") from None
