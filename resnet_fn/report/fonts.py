"""This module finds fonts for the letters of names in pictures.

matplotlib's own font lacks Chinese, Japanese and Korean letters, for example.
"""

import contextlib
import re
from collections.abc import Iterable

# Last Resort, which comes with matplotlib, draws a box for each letter. Emojis cannot be drawn.
_UNFIT = re.compile("^Last Resort|Color Emoji")


def font_families(texts: Iterable[str]) -> tuple[list[str], str]:
    """Return font families that have the letters of `texts`, and the letters that no font has.

    The first family is matplotlib's own. Every other one has most of the letters still missing.
    """
    from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager

    families = list(FontProperties().get_family())
    missing = {letter for text in texts for letter in text if not letter.isspace()}
    missing -= _letters_of(findfont(FontProperties()))
    if not missing:
        return families, ""
    # matplotlib's list lacks fonts that were installed after its first start on this machine.
    for file in {*findSystemFonts()} - {font.fname for font in fontManager.ttflist}:
        with contextlib.suppress(Exception):  # FreeType cannot read all kinds of files
            fontManager.addfont(file)
    letters = {
        font.name: missing & _letters_of(font.fname)
        for font in fontManager.ttflist
        if (font.style, font.weight) == ("normal", 400) and not _UNFIT.search(font.name)
    }
    while missing & set().union(*letters.values()):
        best = max(letters, key=lambda name: len(letters[name] & missing))
        families.append(best)
        missing -= letters[best]
    return families, "".join(sorted(missing))


def _letters_of(file: str) -> set[str]:
    from matplotlib.font_manager import get_font

    return set(map(chr, get_font(file).get_charmap()))


def with_codes(text: str, letters: str) -> str:
    r"""Return `text` with the code of each of `letters`, which no font has, for example \u732b."""
    codes = {ord(letter): letter.encode("ascii", "backslashreplace").decode() for letter in letters}
    return text.translate(codes)
