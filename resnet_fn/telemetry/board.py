"""`Board` writes the events of a run for TensorBoard."""

import logging
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import in_utf8, warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.wording import first_line
from resnet_fn.recipes import RECIPES
from resnet_fn.runtime.disk import saving

# If torch is installed, tensorboardX imports it only to accept torch's tensors, which takes 1.2 s
# and 180 MB.
if _no_torch := "torch" not in sys.modules:
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail
try:
    from tensorboardX import summary
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto import event_pb2
finally:
    if _no_torch:
        del sys.modules["torch"]

# The run itself reports numbers that are not finite, so tensorboardX does not have to warn of them.
logging.getLogger("tensorboardX").setLevel(logging.ERROR)

# metrics.jsonl field → TensorBoard name
SCALARS = {
    "train": {
        "loss": "train/loss",
        "accuracy": "train/accuracy",
        "lr": "train/learning_rate",
        "grad_norm": "train/gradient_norm",
        "loss_scale": "train/loss_scale",
        "skipped": "train/skipped_updates",
        **{
            name: f"train_system/{name}"
            for name in ("images_per_second", "data_seconds", "step_seconds", "memory_mb")
        },
    },
    "eval": {name: f"eval/{name}" for name in ("loss", "top1", "top5", "macro_f1", "map")},
    "checkpoint": {"stall_seconds": "train_system/checkpoint_stall_seconds"},
}
_FP16_ONLY = ("loss_scale", "skipped")  # flat lines in float32
# Limits of a histogram's bins, which grow by a tenth from 1e-12 to 1e20, as in TensorFlow's writer.
_POSITIVE = np.geomspace(1e-12, 1e20, 774)
_BINS = np.concatenate((-_POSITIVE[::-1], [0.0], _POSITIVE))
_FLUSH_SECONDS = 10.0  # TensorBoard shows events at most this late
_SHOWN, _SIDE = 16, 140  # images of the first batch, in two rows; pixels a side at most


class EventFile:
    """Writes TensorBoard's events to a new file in a folder, in the calling thread.

    tensorboardX's `SummaryWriter` has a thread and a queue instead. If the thread ends by an error,
    the caller waits for a place in the queue without end.

    Attributes:
        error: the first error of a write, after which no more events are written, or None.
    """

    def __init__(self, folder: Path | str, purge_step: int | None = None) -> None:
        """Open the file. TensorBoard hides older files' events from `purge_step` on."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.error: OSError | None = None
        self._events = EventsWriter(str(Path(folder, "events")))
        self._flushed = time.monotonic()
        if purge_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(event_pb2.Event(step=purge_step, session_log=start))

    def add(self, content: Any, step: int) -> None:
        """Add a summary, as the functions of `tensorboardX.summary` make them."""
        self._write(event_pb2.Event(step=step, summary=content))

    def add_histogram(self, name: str, values: np.ndarray, step: int) -> None:
        """Add the distribution of finite values of any shape."""
        self.add(summary.histogram(name, values, _BINS), step)

    def flush(self, after: float = 0.0) -> None:
        """Write the events that are in memory if the last flush is `after` seconds ago."""
        if self.error is not None or time.monotonic() - self._flushed < after:
            return
        try:
            self._events.flush()
            self._flushed = time.monotonic()
        except OSError as error:
            self._keep(error)

    def close(self) -> None:
        """Write the events that are still in memory, and close the file."""
        try:
            self._events.close()
        except OSError as error:
            self._keep(error)
            with warnings.catch_warnings():
                # A file that cannot be flushed is only closed when it is deleted.
                warnings.simplefilter("ignore", ResourceWarning)
                del self._events

    def _write(self, event: Any) -> None:
        if self.error is not None:
            return
        event.wall_time = time.time()
        try:
            self._events.write_event(event)
        except OSError as error:
            self._keep(error)

    def _keep(self, error: OSError) -> None:
        self.error = self.error or error.with_traceback(None)  # a traceback would keep the file


class Board:
    """Writes a run's TensorBoard events after update `start`.

    Older events after `start` (if 0, all) are hidden.
    """

    def __init__(self, folder: Path, recipe: Recipe, options: RunOptions, start: int) -> None:
        self._folder = folder
        self._file = EventFile(folder, purge_step=start + 1 if start else 0)
        self._hidden = () if recipe.precision == "fp16" else _FP16_ONLY
        self._session_end: Any = None
        if not start:
            self._add_config(recipe, options)

    def scalars(self, event: Mapping[str, Any]) -> None:
        """Add the fields of an event that `SCALARS` lists.

        Raises an OSError if earlier events could not be written.
        """
        self._check()
        for field, name in SCALARS[event["event"]].items():
            if event.get(field) is not None and field not in self._hidden:
                self._file.add(summary.scalar(name, event[field]), event["update"])
        self._file.flush(after=_FLUSH_SECONDS)

    def norms(self, norms: Mapping[str, Mapping[str, float]], update: int) -> None:
        """Add 2-norms, which have the form {kind: {group of layers: norm}}."""
        for kind, groups in norms.items():
            for group, value in groups.items():
                self._file.add(summary.scalar(f"train_{kind}_norm/{group}", value), update)

    def batch(self, images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> None:
        """Add the first images of the run and their labels.

        An error is printed as a warning and not raised.
        """
        try:
            text = _describe_batch(images, labels, classes)
            self._file.add(summary.text("config/first_batch", text), 0)
            # Large images would take a second to encode, and the digits' 8 pixels could not be
            # seen.
            step = -(-images.shape[-1] // _SIDE)
            times = max(1, _SIDE // images.shape[-1])
            shown = images[:_SHOWN, :, ::step, ::step].repeat(times, axis=2).repeat(times, axis=3)
            # a fixed scale, so that a wrong normalisation shows: -2.5 is black
            pixels = np.clip(shown / 5.0 + 0.5, 0, 1)
            self._file.add(summary.image("train/first_batch", pixels, dataformats="NCHW"), 0)
        except Exception as error:
            warn(f"first batch not shown in TensorBoard: {first_line(error)}")

    def flush(self) -> None:
        """Write the events that are in memory. Raises an OSError if events could not be written."""
        self._file.flush()
        self._check()

    def close(self, whole: bool) -> None:
        """Write all events and close the file.

        A write error is raised only if the run is complete (`whole`).
        """
        if whole and self._session_end is not None:
            self._file.add(self._session_end, 0)
        self._file.close()
        if whole:
            self._check()

    def _check(self) -> None:
        if self._file.error is not None:
            with saving(self._folder / "events.out.tfevents", self._folder):
                raise self._file.error

    def _add_config(self, recipe: Recipe, options: RunOptions) -> None:
        named = RECIPES.get(recipe.name)
        title = f"recipe {recipe.name}" if named else "default"
        self._file.add(summary.text("config/recipe", _table(recipe, named or Recipe(), title)), 0)
        self._file.add(summary.text("config/options", _table(options, RunOptions(), "default")), 0)
        values = {
            k: v if isinstance(v, bool | int | float | str) else str(v)
            for k, v in vars(recipe).items()
        }
        # Without the description of an experiment, TensorBoard makes one from all runs. It then
        # shows settings that differ first, and the last point of each curve as a metric.
        _, begin, self._session_end = summary.hparams(values, {})
        self._file.add(begin, 0)


def _describe_batch(images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> str:
    lines = [
        f"- channel {c}: mean {x.mean():.2f} ± {x.std():.2f}"
        for c, x in enumerate(images.swapaxes(0, 1))
    ]
    for number, label in enumerate(labels[:_SHOWN], 1):
        shares = (
            {label: 1.0}
            if labels.ndim == 1
            else {index: label[index] for index in np.flatnonzero(label)}
        )
        names = (f"{in_utf8(classes[index])} {share:.0%}" for index, share in shares.items())
        lines.append(f"- image {number}: {', '.join(names) or 'no class'}")
    return "\n".join(lines)


def _table(config: Recipe | RunOptions, base: Recipe | RunOptions, title: str) -> str:
    """Return all settings as a Markdown table, in which settings that differ from `base` come
    first.
    """
    changed = []
    same = []
    for name, value in vars(config).items():
        usual = getattr(base, name)
        if value == usual:
            same.append(f"| {name} | {value} |  |")
        else:
            shown = '""' if value == "" else value
            changed.append(f"| **{name}** | **{shown}** | {usual} |")
    return "\n".join((f"| setting | value | {title} |", "|---|---|---|", *changed, *same))
