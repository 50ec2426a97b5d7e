"""These functions phrase counts, lists, values and errors in messages."""

from collections.abc import Sequence

_PACKAGES = ("torch", "mindspore", "tensorflow", "keras", "jax")  # those that `kind_of` names


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts, such as "1 image" or "2,000 images"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + 's'}"


def first_few(items: Sequence[object], limit: int = 3, separator: str = ", ") -> str:
    """Join the first `limit` items and count the rest, for example "a, b, c and 4 more"."""
    text = separator.join(map(str, items[:limit]))
    more = len(items) - limit
    if more > 0:
        text += f" and {more} more"
    return text


def kind_of(value: object) -> str:
    """Return what a value is and which package it is from, for example "a DataLoader of torch"."""
    if value is None:
        return "None"
    # A class of the caller that inherits from a package's class counts as the package's.
    makers: Sequence[object]
    if isinstance(value, type):
        kind = f"the class {value.__name__}"
        makers = value.__mro__
    elif callable(value) and hasattr(value, "__name__"):
        kind = f"the function {value.__name__}"
        makers = [value]
    else:
        name = type(value).__name__
        kind = f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
        makers = type(value).__mro__
    for maker in makers:
        module = getattr(maker, "__module__", None) or ""  # None: of a list's method
        package = module.partition(".")[0]
        if package in _PACKAGES:
            return f"{kind} of {package}"
    return kind


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is more than dashes, without a bullet "- "."""
    for line in str(error).splitlines():
        if line.strip(" -"):
            return line.strip().removeprefix("- ")
    return type(error).__name__


def words_of(error: BaseException) -> str:
    """Return an error's class and the first line of its text, as in "ValueError: no"."""
    return f"{type(error).__name__}: {first_line(error)}"
