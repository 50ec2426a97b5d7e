"""TensorBoard: curves, the first batch, the config, and the run as a row of the hyper-parameter table.

Names are grouped by their first part: eval/, system/, train/, train_gradient_norm/, train_update_norm/,
train_weight_norm/ (TensorBoard sorts them, and unfolds the first ones), config/.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry.batch_picture import draw_batch
from resnet_fn.telemetry.summary_writer import SummaryWriter, hparams

# metrics.jsonl field → TensorBoard name
SCALARS = {
    "train": {
        "loss": "train/loss",
        "accuracy": "train/accuracy",
        "lr": "train/learning_rate",
        "grad_norm": "train/gradient_norm",
        "loss_scale": "train/loss_scale",
        "skipped": "train/skipped_updates",
        "images_per_second": "system/images_per_second",
        "data_seconds": "system/data_seconds",
        "step_seconds": "system/step_seconds",
        "memory_mb": "system/memory_mb",
    },
    "eval": {"loss": "eval/loss", "top1": "eval/top1", "top5": "eval/top5"},
    "checkpoint": {"stall_seconds": "system/checkpoint_stall_seconds"},
}


class Board:
    """A run folder's TensorBoard events.

    Args:
        folder: the run folder.
        recipe, options: the config, written as text and as the run's row in the table of hyper-parameters.
        start: updates done before; what a stopped run wrote about later ones is hidden.
    """

    def __init__(self, folder: Path, recipe: Recipe, options: RunOptions, start: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=start + 1 if start else 0, flush_secs=10)
        self._session_end: Any = None
        if not start:
            self._add_config(recipe, options)

    def scalars(self, event: Mapping[str, Any]) -> None:
        """Add the fields of an event that have a TensorBoard name."""
        for field, name in SCALARS[event["event"]].items():
            if event.get(field) is not None:
                self._writer.add_scalar(name, event[field], event["update"])

    def norms(self, norms: Mapping[str, Mapping[str, float]], update: int) -> None:
        """Add the norms of each group of layers."""
        for kind, groups in norms.items():
            for group, value in groups.items():
                self._writer.add_scalar(f"train_{kind}_norm/{group}", value, update)

    def batch(self, images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> None:
        """Add the run's first batch as the net sees it, with its labels."""
        self._writer.add_image("train/first_batch", draw_batch(images, labels, classes), 0, dataformats="HWC")

    def close(self, whole: bool) -> None:
        """Write everything; `whole`: the run came to its end."""
        if whole and self._session_end is not None:
            self._writer.file_writer.add_summary(self._session_end, 0)
        self._writer.close()

    def _add_config(self, recipe: Recipe, options: RunOptions) -> None:
        for name, settings in (("recipe", vars(recipe)), ("options", vars(options))):
            rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
            self._writer.add_text(f"config/{name}", f"| setting | value |\n|---|---|\n{rows}", 0)
        values = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in vars(recipe).items()}
        # Without the description of an experiment TensorBoard makes one from all runs: settings that differ come
        # first, and every curve's last point is a metric, evaluation's first.
        _, begin, self._session_end = hparams(values, {})
        self._writer.file_writer.add_summary(begin, 0)
