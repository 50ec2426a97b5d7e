"""Where a run stands, how fast it goes, and which of its evaluations is the best so far."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass
class Progress:
    """Where a run stands: what a checkpoint carries beside the tensors.

    Attributes:
        update: updates done.
        best: {"top1", "update"} (no top1 where images have any number of classes) and what the recipe monitors, of the
            best evaluation; None before the first.
        last: the latest evaluation, None before the first.
        without_gain: evaluations since the last improvement.
        branched_from: the checkpoint of another run that this one began with; "": it began at update 0.
        began: that checkpoint's update.
    """

    update: int = 0
    best: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    without_gain: int = 0
    branched_from: str = ""
    began: int = 0

    @property
    def is_evaluated(self) -> bool:
        """Whether the last evaluation was of this state."""
        return self.last is not None and self.last["update"] == self.update


class Pace:
    """The updates of this process in the current epoch.

    Attributes:
        epochs: rows of the table that have been printed.
        began: when the epoch began, by `time.perf_counter`.
        losses, accuracies: of the applied updates.
        seconds: of each update but the first of the process, which compiles.
        compiling: the seconds of that one, if it is in this epoch.
    """

    def __init__(self) -> None:
        self._compiled = False
        self.begin(0)

    def begin(self, epochs: int) -> None:
        """Start an epoch with its evaluation."""
        self.epochs, self.began, self.compiling = epochs, time.perf_counter(), 0.0
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds: list[float] = []

    def add(self, loss: float, accuracy: float, seconds: float, applied: bool) -> None:
        """Add an update."""
        if applied:
            self.losses.append(loss)
            self.accuracies.append(accuracy)
        if self._compiled:
            self.seconds.append(seconds)
        else:
            self._compiled, self.compiling = True, seconds


def note_evaluation(progress: Progress, monitor: str, metrics: Mapping[str, Any]) -> None:
    """Note whether an evaluation is the best so far. Ties go to the later one, but do not count as an improvement.

    Only a finite result can be the best.
    """
    best, value = progress.best, metrics[monitor]
    gain = 0.0
    if metrics["loss"] < float("inf"):
        gain = 1.0 if best is None else (best[monitor] - value if monitor == "loss" else value - best[monitor])
        if gain >= 0:
            top1 = {"top1": metrics["top1"]} if "top1" in metrics else {}
            progress.best = {**top1, monitor: value, "update": progress.update}
    progress.without_gain = 0 if gain > 0 else progress.without_gain + 1


def describe_best(monitor: str, best: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """ "best top-1 97.50% (update 110), last 97.22%"."""
    name = {"top1": "top-1", "macro_f1": "macro F1", "map": "mAP"}.get(monitor, monitor)
    best_value, last_value = (f"{row[monitor]:{'.4f' if monitor == 'loss' else '.2%'}}" for row in (best, last))
    return f"best {name} {best_value} (update {best['update']}), last {last_value}"
