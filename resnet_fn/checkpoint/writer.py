"""Checkpoints are written in the background; training waits only while the state is copied."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.parameters import copy_arrays
from resnet_fn.runtime.disk import no_room
from resnet_fn.update.state import TrainState


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own; as a context, it ends when the last one is written.

    The next call, or at the latest the end of the context, raises the error of a failed save. `state` is None on ranks
    that save nothing. The memory for its copy is allocated here, because training must not wait while it is zeroed.
    """

    def __init__(self, state: TrainState | None) -> None:
        self._parameters = (state.weights, state.training) if state else ((), ())
        self._copies = [copy_arrays(parameters) for parameters in self._parameters]
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saves: list[Future[dict[str, Any]]] = []  # the last one may not be done; their events were not asked for

    def save(self, folder: Path, state: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Wait for an earlier save, copy the state; write it in the background, and then call `then`."""
        began = time.perf_counter()
        self.wait()
        self._copies = [copy_arrays(*pair) for pair in zip(self._parameters, self._copies, strict=True)]
        event = {"event": "checkpoint", "update": state["update"], "stall_seconds": time.perf_counter() - began}
        self._saves.append(self._thread.submit(self._write, folder, dict(state), then, event))

    def poll(self) -> list[dict[str, Any]]:
        """Return the events of saves that were completed since the last call; raise a failed save's error."""
        done = [save for save in self._saves if save.done()]
        self._saves = [save for save in self._saves if save not in done]
        return [save.result() for save in done]

    def wait(self) -> None:
        """Wait until nothing is being written, and raise a failed save's error."""
        for save in self._saves:
            save.result()

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:  # else the loop's own error is on its way
            self.wait()

    def _write(
        self, folder: Path, state: Mapping[str, Any], then: Callable[[], None], event: dict[str, Any]
    ) -> dict[str, Any]:
        began = time.perf_counter()
        weights, training = self._copies
        try:
            write_checkpoint(folder, weights, training, state)
            then()
        except OSError as error:
            raise no_room(folder, error, folder.parent.parent) from None
        return {**event, "write_seconds": time.perf_counter() - began}
