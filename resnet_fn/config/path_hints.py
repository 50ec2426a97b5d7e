"""These functions return hints about a path that is missing, or that is not a run."""

import os
import re
from difflib import get_close_matches
from pathlib import Path

from resnet_fn.config.hints import did_you_mean
from resnet_fn.config.wording import first_few

# One slash is enough, because Path turns http:// into http:/.
_ADDRESS = re.compile("[a-z][a-z0-9]+:/", re.IGNORECASE)


def near_path(path: str | Path, otherwise: str) -> str:
    """Return a hint with existing paths that are nearest to a missing path, or `otherwise` if there
    are none.
    """
    if _ADDRESS.match(str(path)):
        return "it is an address, and nothing is downloaded; download it, and give its path"
    # In runs/frist/checkpoints, if there is no runs/frist: runs exists, runs/frist is missing, and
    # checkpoints is below it. The nearest folders that have it, too, are complete.
    existing = missing = Path(path)
    # unlike those of `Path`, this function raises no error below an unreadable folder
    while not os.path.exists(existing) and existing != existing.parent:
        missing = existing
        existing = missing.parent
    try:
        names = os.listdir(existing)
    except OSError:  # it is a file, or a folder that may not be read
        return otherwise
    nearest = [existing / name for name in get_close_matches(missing.name, names)]
    if not nearest:
        return otherwise
    below = Path(path).relative_to(missing)
    complete = [folder / below for folder in nearest if os.path.exists(folder / below)]
    return did_you_mean(complete or nearest)


def near_run(path: Path, otherwise: str) -> str:
    """Suggest runs or existing paths near `path`, which lacks what the caller needs, or return
    `otherwise`.
    """
    is_folder = os.path.isdir(path)
    folder = path if is_folder else path.parent
    runs = sorted(str(log.parent) for log in folder.glob("*/metrics.jsonl"))
    if runs:
        otherwise = f"give one of the runs in {folder}: {first_few(runs)}"
    return otherwise if is_folder else near_path(path, otherwise)
