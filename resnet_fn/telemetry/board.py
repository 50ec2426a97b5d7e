"""`Board` writes the events of a run for TensorBoard."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.recipes import RECIPES
from resnet_fn.runtime.console import printable
from resnet_fn.runtime.disk import no_room

# If torch is installed, tensorboardX imports it only to accept torch's tensors, which takes 1.2 s and 180 MB.
if _no_torch := "torch" not in sys.modules:
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail
try:
    import tensorboardX
    from tensorboardX.summary import hparams
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
        **{name: f"train_system/{name}" for name in ("images_per_second", "data_seconds", "step_seconds", "memory_mb")},
    },
    "eval": {name: f"eval/{name}" for name in ("loss", "top1", "top5", "macro_f1", "map")},
    "checkpoint": {"stall_seconds": "train_system/checkpoint_stall_seconds"},
}
_FP16_ONLY = ("loss_scale", "skipped")  # flat lines in float32
_SHOWN, _SIDE = 16, 140  # images of the first batch, in two rows; pixels a side at most


class SummaryWriter(tensorboardX.SummaryWriter):
    """A writer of tensorboardX that stores a write error in `error` instead of raising it."""

    def __init__(self, folder: Path | str, **options: Any) -> None:
        try:
            super().__init__(str(folder), **options)
        except RuntimeError:  # no thread could start, and the process would wait for one at exit
            if self.file_writer:
                self.file_writer.event_writer._closed = True
            raise
        self.error: OSError | None = None
        events = self.file_writer.event_writer._ev_writer
        for name in ("write_event", "flush", "close"):
            setattr(events, name, partial(self._keep_error, getattr(events, name)))

    def _keep_error(self, write: Callable[..., Any], *arguments: Any) -> Any:
        if self.error is None:
            try:
                return write(*arguments)
            except OSError as error:
                self.error = error  # if it were raised, the writing thread would end and callers would wait


class Board:
    """Writes a run's TensorBoard events after update `start`. Older events after `start` (if 0, all) are hidden."""

    def __init__(self, folder: Path, recipe: Recipe, options: RunOptions, start: int) -> None:
        self._folder = folder
        self._writer = SummaryWriter(folder, purge_step=start + 1 if start else 0, flush_secs=10)
        self._hidden = () if recipe.precision == "fp16" else _FP16_ONLY
        self._session_end: Any = None
        if not start:
            self._add_config(recipe, options)

    def scalars(self, event: Mapping[str, Any]) -> None:
        """Add the fields of an event that `SCALARS` lists. Raises an OSError if earlier events could not be written."""
        self._check()
        for field, name in SCALARS[event["event"]].items():
            if event.get(field) is not None and field not in self._hidden:
                self._writer.add_scalar(name, event[field], event["update"])

    def norms(self, norms: Mapping[str, Mapping[str, float]], update: int) -> None:
        """Add 2-norms, which have the form {kind: {group of layers: norm}}."""
        for kind, groups in norms.items():
            for group, value in groups.items():
                self._writer.add_scalar(f"train_{kind}_norm/{group}", value, update)

    def batch(self, images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> None:
        """Add the first images of the run and their labels. An error is printed as a warning and not raised."""
        try:
            self._writer.add_text("config/first_batch", _describe_batch(images, labels, classes), 0)
            # Large images would take a second to encode, and the digits' 8 pixels could not be seen.
            step, times = -(-images.shape[-1] // _SIDE), max(1, _SIDE // images.shape[-1])
            shown = images[:_SHOWN, :, ::step, ::step].repeat(times, axis=2).repeat(times, axis=3)
            grey = shown / 5.0 + 0.5  # a fixed scale, so that a wrong normalisation shows: -2.5 is black
            self._writer.add_images("train/first_batch", np.clip(grey, 0, 1), 0)
        except Exception as error:
            print(f"warning: first batch not shown in TensorBoard: {first_line(error)}", file=sys.stderr, flush=True)

    def close(self, whole: bool) -> None:
        """Write all events and close the file. A write error is raised only if the run is complete (`whole`)."""
        if whole and self._session_end is not None:
            self._writer.file_writer.add_summary(self._session_end, 0)
        self._writer.close()
        if whole:
            self._check()

    def _check(self) -> None:
        if self._writer.error is not None:
            raise no_room(self._folder / "events.out.tfevents", self._writer.error, self._folder)

    def _add_config(self, recipe: Recipe, options: RunOptions) -> None:
        named = RECIPES.get(recipe.name)
        title = f"recipe {recipe.name}" if named else "default"
        self._writer.add_text("config/recipe", _table(recipe, named or Recipe(), title), 0)
        self._writer.add_text("config/options", _table(options, RunOptions(), "default"), 0)
        values = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in vars(recipe).items()}
        # Without the description of an experiment, TensorBoard makes one from all runs. It then shows settings that
        # differ first, and the last point of each curve as a metric.
        _, begin, self._session_end = hparams(values, {})
        self._writer.file_writer.add_summary(begin, 0)


def _describe_batch(images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> str:
    lines = [f"- channel {c}: mean {x.mean():.2f} ± {x.std():.2f}" for c, x in enumerate(images.swapaxes(0, 1))]
    for number, label in enumerate(labels[:_SHOWN], 1):
        shares = {label: 1.0} if labels.ndim == 1 else {place: label[place] for place in np.flatnonzero(label)}
        names = (f"{printable(classes[place])} {share:.0%}" for place, share in shares.items())
        lines.append(f"- image {number}: {', '.join(names) or 'no class'}")
    return "\n".join(lines)


def _table(config: Recipe | RunOptions, base: Recipe | RunOptions, title: str) -> str:
    """Return all settings as a Markdown table, in which settings that differ from `base` come first."""
    changed, same = [], []
    for name, value in vars(config).items():
        usual = getattr(base, name)
        if value == usual:
            same.append(f"| {name} | {value} |  |")
        else:
            shown = '""' if value == "" else value
            changed.append(f"| **{name}** | **{shown}** | {usual} |")
    return "\n".join((f"| setting | value | {title} |", "|---|---|---|", *changed, *same))
