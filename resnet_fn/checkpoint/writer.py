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
    """Writes one checkpoint at a time in its own thread; leaving the `with` block waits for the last one.

    The next call, or the end of the block, raises the error of a failed save. `state` is None on ranks that save
    nothing. The constructor allocates memory for a copy of `state`, so that training never waits for the allocation.
    """

    def __init__(self, state: TrainState | None) -> None:
        self._parameters = (state.weights, state.training) if state else ((), ())
        self._copies = [copy_arrays(parameters) for parameters in self._parameters]
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saves: list[Future[dict[str, Any]]] = []  # those that `poll` has not returned; the last may be running

    def save(self, folder: Path, state: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Wait for the last save and copy the Parameters; in the background write the copy, then call `then`."""
        began = time.perf_counter()
        self.wait()
        self._copies = [copy_arrays(*pair) for pair in zip(self._parameters, self._copies, strict=True)]
        event = {"event": "checkpoint", "update": state["update"], "stall_seconds": time.perf_counter() - began}
        self._saves.append(self._thread.submit(self._write, folder, dict(state), then, event))

    def poll(self) -> list[dict[str, Any]]:
        """Return one event per save completed since the last call, for metrics.jsonl; raise a failed save's error."""
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
