"""How a search for a cause is tried: it may fail, and what it finds must fit."""

from collections.abc import Callable
from typing import Any

from resnet_fn.config.hints import first_line

FITS = 1e-3  # relative error up to which a candidate explains a difference


def attempt(search: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """What a search for a cause finds, in words. If it fails, that costs the hint, not the verdict."""
    try:
        return search(*arguments)
    except Exception as error:
        words = f"the search for a cause failed ({type(error).__name__}: {first_line(error)})"
        return [f"{words}; the verdict does not depend on it"]
