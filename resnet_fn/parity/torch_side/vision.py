"""torchvision, where it can be used: nothing here needs it."""

import importlib
from typing import Any


def find_torchvision() -> Any:
    """The module torchvision with its models and transforms; None where it is not installed, or does not load.

    Its wheel from PyPI has operators in C++ that do not load beside PyTorch's CPU build; importing it is an error then.
    """
    try:
        for part in ("models", "transforms"):
            importlib.import_module(f"torchvision.{part}")
    except (ImportError, RuntimeError):
        return None
    return importlib.import_module("torchvision")
