"""This module imports packages that only some commands need."""

import importlib
from typing import Any


def import_extra(module: str, purpose: str) -> Any:
    """Import a package that only some commands need. `purpose` begins the error message, as in "writing .pth files"."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(f"{purpose} needs {module}; run pip install {module.partition('.')[0]}") from None
