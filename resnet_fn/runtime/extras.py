"""Some commands need packages that others do not need."""

import importlib
from typing import Any


def import_extra(module: str, purpose: str) -> Any:
    """Import a package that only some commands need; a ValueError has the command to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(f"{purpose} needs {module}; pip install {module.partition('.')[0]}") from None
