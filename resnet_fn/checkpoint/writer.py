"""This module writes checkpoints in a background thread."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.parameters import copy_arrays
from resnet_fn.runtime.disk import saving
from resnet_fn.update.state import TrainState


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays of one dtype are bitwise equal, also where they are NaN or -0."""
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


class CheckpointWriter:
    """Writes checkpoints in a background thread.

    The `with` block ends after all saves, and raises a save's error.
    """

    def __init__(self, state: TrainState | None) -> None:
        # None: this worker saves nothing
        self._parameters = (state.of_net, state.training) if state else ((), ())
        self._infinite = state.infinite if state else frozenset()
        # allocates memory before training
        self._copies = [copy_arrays(parameters) for parameters in self._parameters]
        self._folder: Path | None = None  # the newest save, which has the values of `_copies`
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saves: list[Future[dict[str, Any]]] = []  # saves that `poll` has not returned yet

    def save(self, folder: Path, state: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Wait for earlier saves, and copy the Parameters and buffers. In the background, write the
        copies and then call `then`.

        If `folder` is the newest save and no Parameter or buffer has changed since, the call
        neither waits nor copies, and in the background the files with tensors are linked, if the
        file system has hard links.
        """
        began = time.perf_counter()
        is_same = folder == self._folder and self._are_copied()
        if not is_same:
            self.wait()
            self._copies = [
                copy_arrays(*pair) for pair in zip(self._parameters, self._copies, strict=True)
            ]
            self._folder = folder
        event = {
            "event": "checkpoint",
            "update": state["update"],
            "stall_seconds": time.perf_counter() - began,
        }
        write = partial(self._write, folder, dict(state), then, event, is_same)
        self._saves.append(self._thread.submit(write))

    def _are_copied(self) -> bool:
        """Return whether all Parameters are bitwise equal to the copies."""
        return all(
            _same_bits(parameter.numpy(), copies[parameter.name])
            for parameters, copies in zip(self._parameters, self._copies, strict=True)
            for parameter in parameters
        )

    def poll(self) -> list[dict[str, Any]]:
        """Return a metrics.jsonl event for each save that ended since the last call, or raise a
        failed save's error.
        """
        done = [save for save in self._saves if save.done()]
        self._saves = [save for save in self._saves if save not in done]
        return [save.result() for save in done]

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all saves have ended, or for `seconds`. Raise the error of a failed save."""
        for save in wait(self._saves, seconds).done:
            save.result()

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:  # otherwise the error of the `with` block is raised
            self.wait()

    def _write(
        self,
        folder: Path,
        state: Mapping[str, Any],
        then: Callable[[], None],
        event: dict[str, Any],
        is_same: bool,
    ) -> dict[str, Any]:
        began = time.perf_counter()
        weights, training = self._copies
        with saving(folder, folder.parent.parent):
            write_checkpoint(folder, weights, training, state, self._infinite, links=is_same)
            then()
        return {**event, "write_seconds": time.perf_counter() - began}
