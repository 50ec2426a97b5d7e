"""`Telemetry` writes metrics.jsonl and TensorBoard events and shows the progress bar, all on rank
0.
"""

import contextlib
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import say
from resnet_fn.config.recipe import Recipe
from resnet_fn.runtime.disk import finite_or_null, replace_text, saving
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.board import Board

PAUSE = 60.0  # seconds between two printed lines if there is no progress bar
# fits into 80 columns
BAR = "{desc}{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class Pace:
    """Collects the losses, accuracies and durations of the updates of the current epoch.

    The time of the process's first update includes compilation, and is stored in `compiling`
    instead of `seconds`.
    """

    def __init__(self) -> None:
        self._compiled = False
        self.begin(0)

    def begin(self, epochs: int) -> None:
        """Start to collect values of a new epoch. This process has ended `epochs` epochs."""
        self.epochs, self.began, self.compiling = epochs, time.perf_counter(), 0.0
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds: list[float] = []

    def add(self, loss: float, accuracy: float, seconds: float, applied: bool) -> None:
        """Add an update. The loss and the accuracy count only if the update was `applied`."""
        if applied:
            self.losses.append(loss)
            self.accuracies.append(accuracy)
        if self._compiled:
            self.seconds.append(seconds)
        else:
            self._compiled, self.compiling = True, seconds


class Telemetry:
    """Writes the events of a run to its folder and shows the progress bar.

    Use `Telemetry` in a `with` block.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        options: RunOptions,
        start: int,
        total: int,
        is_evaluated: bool = True,
    ) -> None:
        """Open the log of a run of `total` updates, of which `start` are done.

        An earlier log keeps the events up to update `start`. Without `is_evaluated`, the run
        repeats the evaluation of this update, and its earlier event is removed.
        """
        self._folder = folder
        log = folder / "metrics.jsonl"
        if log.exists():
            kept = (
                json.dumps(event) + "\n"
                for event in read_log(log)
                if event["update"] < start
                or (event["update"] == start and (is_evaluated or event.get("event") != "eval"))
            )
            replace_text(log, "".join(kept))
        self._log = open(log, "a", encoding="utf-8")  # noqa: SIM115 (closed in __exit__)
        self._board = Board(folder, recipe, options, start)
        self._left = total - start
        self._bar = tqdm(
            total=total,
            initial=start,
            unit="update",
            disable=None if options.progress else True,  # None: hidden if stderr is no terminal
            dynamic_ncols=True,
            bar_format=BAR,
        )
        self._next_line = (
            time.monotonic() + PAUSE if options.progress and self._bar.disable else float("inf")
        )

    def __enter__(self) -> "Telemetry":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._bar.close()
        try:
            with saving(Path(self._log.name), self._folder):
                self._log.close()
        except OSError:
            if error is None:  # otherwise the loop's own error is being raised
                raise
        finally:
            self._board.close(whole=error is None and self._left == 0)

    def first_batch(self, images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> None:
        """Show the first batch in TensorBoard, with images float32 [n, C, H, W] as the net gets
        them.
        """
        self._board.batch(images, labels, classes)

    def advance(self, epoch: int, epochs: int, event: dict[str, Any] | None) -> None:
        """Advance the progress bar by one update, and log `event` if it is not None."""
        if event is not None:
            event["memory_mb"] = memory_mb()
            self._write(event)
            self._board.norms(event.get("norms", {}), event["update"])
            position = f"epoch {epoch + 1}/{epochs}"
            loss = f"loss {event['loss']:.4f}"
            rate = f"{event['images_per_second']:.0f} images/s"
            self._bar.set_description_str(f"{position} ", refresh=False)
            self._bar.set_postfix_str(f"{loss}, {rate}", refresh=False)
            if time.monotonic() > self._next_line:
                self._next_line = time.monotonic() + PAUSE
                accuracy = f"acc {event['accuracy']:.1%}, " if "accuracy" in event else ""
                self.say(
                    f"{position}, update {event['update']}: {loss}, {accuracy}lr {event['lr']:.4g}, "
                    f"{rate}"
                )
        self._left -= 1
        self._bar.update()

    def evaluated(self, event: dict[str, Any]) -> None:
        """Log the event of an evaluation."""
        self._write(event)
        self.flush()

    def end_early(self) -> None:
        """Mark the run as complete although some updates are left."""
        self._left = 0

    def checkpointed(self, events: Sequence[dict[str, Any]]) -> None:
        """Log the events of checkpoints that were written, at once: a start without these
        checkpoints is an error (`find_start`).
        """
        for event in events:
            self._write(event)
        if events:
            self.flush()

    def flush(self) -> None:
        """Write all lines and events to their files. Call this before a checkpoint is saved."""
        with saving(Path(self._log.name), self._folder):
            self._log.flush()
        self._board.flush()

    def say(self, *lines: str) -> None:
        """Print lines on stdout above the progress bar."""
        self._bar.clear()
        say(*lines)
        self._bar.refresh()

    def _write(self, event: dict[str, Any]) -> None:
        with saving(Path(self._log.name), self._folder):
            self._log.write(json.dumps(finite_or_null(event), allow_nan=False) + "\n")
        self._board.scalars(event)


class SilentTelemetry(Telemetry):
    """Replaces `Telemetry` on all workers except rank 0. The methods do nothing."""

    def __init__(self) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    __exit__ = first_batch = advance = evaluated = end_early = checkpointed = flush = say = _nothing


def memory_mb() -> float:
    """Return the memory that this process uses in MiB, or its peak if that cannot be read."""
    import psutil

    with contextlib.suppress(OSError, psutil.Error):
        return psutil.Process().memory_info().rss / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
