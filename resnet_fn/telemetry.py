"""What a run tells: metrics.jsonl, TensorBoard scalars, the progress bar. Rank 0 alone has them."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter
from tqdm import tqdm

# metrics.jsonl field → TensorBoard name
_TRAIN_SCALARS = {
    "loss": "train/loss",
    "accuracy": "train/accuracy",
    "lr": "train/learning_rate",
    "grad_norm": "train/gradient_norm",
    "loss_scale": "train/loss_scale",
    "skipped": "train/skipped_updates",
    "images_per_second": "system/images_per_second",
    "data_seconds": "system/data_seconds",
    "step_seconds": "system/step_seconds",
}
_EVAL_SCALARS = {"loss": "eval/loss", "top1": "eval/top1", "top5": "eval/top5"}


class Telemetry:
    """Writes events to a run folder and shows the bar. Use it as a context: leaving it flushes everything.

    Args:
        folder: the run folder; None (every rank but 0): all calls do nothing.
        start, total: updates done before, and in the whole run.
        progress: whether to show the bar.
    """

    def __init__(self, folder: Path | None, start: int, total: int, progress: bool = True) -> None:
        self._folder = folder
        if folder is None:
            return
        _drop_events_after(folder / "metrics.jsonl", start)
        self._log = open(folder / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (closed in __exit__)
        # Events of updates that a stopped run did after its last checkpoint must not stay in the curves.
        self._board = SummaryWriter(str(folder), purge_step=start + 1 if start else None, flush_secs=10)
        # A log file gets a line now and then, a terminal a smooth bar.
        interval = 0.1 if os.isatty(2) else 10.0
        self._bar = tqdm(
            total=total, initial=start, unit="update", disable=not progress, mininterval=interval, dynamic_ncols=True
        )

    def __enter__(self) -> "Telemetry":
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._bar.close()
            self._log.close()
            self._board.close()

    def advance(self, epoch: int, epochs: int, event: dict[str, Any] | None) -> None:
        """One update is done; log its event if there is one."""
        if self._folder is None:
            return
        if event is not None:
            self._write(event, _TRAIN_SCALARS)
            self._bar.set_description_str(f"epoch {epoch + 1}/{epochs}", refresh=False)
            self._bar.set_postfix_str(
                f"loss {event['loss']:.4f}, acc {event['accuracy']:.1%}, lr {event['lr']:.4g}, "
                f"{event['images_per_second']:.0f} images/s",
                refresh=False,
            )
        self._bar.update()

    def evaluated(self, event: dict[str, Any], text: str) -> None:
        """Log an evaluation and print a line about it."""
        if self._folder is not None:
            self._write(event, _EVAL_SCALARS)
            self._log.flush()
            self.say(text)

    def checkpointed(self, events: Sequence[dict[str, Any]]) -> None:
        """Log checkpoints that have been written."""
        if self._folder is not None:
            for event in events:
                self._write(event, {"stall_seconds": "system/checkpoint_stall_seconds"})

    def flush(self) -> None:
        """Hand all lines to the system: a checkpoint must not be ahead of the log that it continues."""
        if self._folder is not None:
            self._log.flush()

    def say(self, text: str) -> None:
        """Print a line on stdout without tearing the bar."""
        if self._folder is not None:
            self._bar.clear()
            print(text, flush=True)

    def _write(self, event: dict[str, Any], scalars: dict[str, str]) -> None:
        # JSON has no NaN: null says that there was a figure and that it was not finite.
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in event.items()}
        self._log.write(json.dumps(finite) + "\n")
        for field, name in scalars.items():
            if finite[field] is None:
                continue
            self._board.add_scalar(name, event[field], event["update"])


def _drop_events_after(log: Path, update: int) -> None:
    """Cut events of later updates (and a torn last line) from a log that a stopped run left."""
    if not log.exists():
        return
    kept = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["update"] <= update:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue  # torn by the fault that stopped the run
    temporary = log.with_suffix(".tmp")
    temporary.write_text("".join(kept), encoding="utf-8")
    temporary.replace(log)
