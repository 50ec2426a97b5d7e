"""Pieces of a page: text, numbers, tables, pictures."""

import base64
import html
from collections.abc import Iterable, Sequence


def text(value: object) -> str:
    """A value as text of a page, escaped."""
    return html.escape(str(value))


def number(value: float | None, form: str = ".4f") -> str:
    """A number as text; None is "not finite"."""
    return "not finite" if value is None else format(value, form)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """A table that scrolls; cells are HTML, the first `text_columns` stand left."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = ['class="text"' if place < text_columns else "" for place in range(len(row))]
        return "".join(f"<{tag} {kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    lines = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', header)}</tr></thead>"
    return f'<div class="scroll"><table>{head}\n<tbody>{lines}</tbody></table></div>'


def image(alt: str, data: bytes) -> str:
    """An image file inside the page."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f'<img alt="{text(alt)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
