"""These functions make the rows of a CSV table of predictions."""

from collections.abc import Mapping
from typing import Any

from resnet_fn.data.cells import to_cell


def table_header(classes: int) -> list[str]:
    """Return the names of the columns, if an image has at most `classes` classes."""
    columns = ["file"]
    for position in range(1, classes + 1):
        number = str(position) if position > 1 else ""
        columns += [f"class{number}", f"probability{number}"]
    return [*columns, "error"]


def table_row(result: Mapping[str, Any], classes: int) -> list[str]:
    """Return the cells of a result of `predict`, as many as `table_header` has."""
    cells = [result["file"]]
    for likely in result.get("top", ()):
        cells += [likely["class"], f"{likely['probability']:.6g}"]
    cells += [""] * (1 + 2 * classes - len(cells))
    cells.append(result.get("error", ""))
    return [to_cell(cell) for cell in cells]
