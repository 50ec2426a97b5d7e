"""These functions print lines that contain texts of others, such as names of files and classes.

Such a text may have a line break, or codes that a terminal obeys. The stream may lack a character.
"""

import re
import shlex
import sys
from typing import TextIO

_CONTROLS = "\x00-\x1f\x7f-\x9f"
_LINE_SEPARATORS = "\u2028\u2029"
_DIRECTION_MARKS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # of writing
_UNSAFE = re.compile(f"[{_CONTROLS}{_LINE_SEPARATORS}{_DIRECTION_MARKS}]")


def in_utf8(name: str) -> str:
    """Return a file's name in which bytes that are not UTF-8 are written as escapes, such as
    "\\xff".
    """
    return _as_bytes(name).decode("utf-8", "backslashreplace")


def _as_bytes(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, as JSON can have it, which no stream can write
        return name.encode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """Return a text as one line that a terminal shows and does not obey.

    Control characters are written as escapes, such as "\\x1b" and "\\n".
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), in_utf8(text))


_ESCAPED = re.compile(rb"[^\x20-\x7e]|['\\]")  # bytes that are escapes between $' and '


def shell_words(*arguments: object) -> str:
    """Return arguments as a shell reads them, on one line that a terminal shows and does not
    obey.
    """
    return " ".join(map(_shell_word, map(str, arguments)))


def _shell_word(argument: str) -> str:
    if printable(argument) == argument:
        return shlex.quote(argument)
    escaped = _ESCAPED.sub(lambda match: b"\\x%02x" % match[0][0], _as_bytes(argument))
    return f"$'{escaped.decode()}'"


def say(*lines: object, stream: TextIO | None = None) -> None:
    """Print lines on `stream`, by default stdout. Each text is one line, whatever it contains.

    Characters that the stream cannot encode are written as escapes.
    """
    stream = sys.stdout if stream is None else stream
    text = "".join(f"{printable(str(line))}\n" for line in lines)
    try:
        print(text, end="", file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        print(text, end="", file=stream, flush=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    say(f"warning: {text}", stream=sys.stderr)
