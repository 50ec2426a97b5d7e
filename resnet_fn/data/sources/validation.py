"""These functions split validation files off the training files, and store the split in a run folder."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.data.order import Streams
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.runtime.disk import replace_text

FILE = "validation.json"


def hold_out(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw a mask, bool [N], of the validation samples: about `share` of each class, but never a whole class."""
    rng = np.random.default_rng([seed, Streams.VALIDATION])
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        held[places[: min(max(1, round(share * len(places))), len(places) - 1)]] = True
    return held


def split_off(files: FileSplit, share: float, seed: int, run: Path | None = None) -> tuple[FileSplit, FileSplit]:
    """Split off the files that validation.json in `run` lists. Without validation.json, `hold_out` draws the files."""
    path = run and run / FILE
    if path and path.exists():
        known = set(json.loads(path.read_text(encoding="utf-8")))
        if missing := sorted(known - set(files.names)):
            problem = f"{len(missing)} validation files are not in {files.root} any more: {few(missing)}"
            raise ValueError(f"{path}: {problem}; put these files back, or start another run")
        held = np.array([name in known for name in files.names])
    else:
        held = hold_out(files.labels, share, seed)
    return files.keep(~held), files.keep(held)


def write_validation(run: Path, names: Sequence[str]) -> None:
    """Write the names of the validation files to validation.json in the folder `run`, unless `names` is empty."""
    if names:
        replace_text(run / FILE, json.dumps(sorted(names), indent=0) + "\n")
