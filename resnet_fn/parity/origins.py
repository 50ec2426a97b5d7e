"""How a search for a cause is tried: it may fail, and what it finds must fit."""

from collections.abc import Callable, Iterable
from typing import Any

from resnet_fn.config.hints import first_line

FITS = 1e-3  # relative error up to which a candidate explains a difference
_FAILED = "the search for a cause failed"


def attempt(search: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """What a search for a cause finds, in words. If it fails, that costs the hint, not the verdict."""
    try:
        return search(*arguments)
    except Exception as error:
        return [f"{_FAILED} ({type(error).__name__}: {first_line(error)}); the verdict does not depend on it"]


def first_hints(searches: Iterable[Callable[[Any], list[str]]], case: Any) -> list[str]:
    """What the first search finds that finds anything; else the errors of those that failed."""
    errors: list[str] = []
    for search in searches:
        hints = attempt(search, case)
        if hints and not hints[0].startswith(_FAILED):
            return hints
        errors += hints
    return errors
