"""Checkpoints written in the background: training waits only while the state is copied."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.parameters import copy_arrays
from resnet_fn.runtime.disk import no_room
from resnet_fn.update.state import TrainState


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own; as a context, it ends when the last one is written.

    The error of a save is raised by the next call, at the latest by the end of the context.

    Args:
        state: what is saved; None on ranks that save nothing. The memory for its copy is taken here, because the kernel
            zeroes fresh memory page by page, for which training must not wait.
    """

    def __init__(self, state: TrainState | None) -> None:
        self._parameters = (state.weights, state.training) if state else ((), ())
        self._copies = [copy_arrays(parameters) for parameters in self._parameters]
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._finished: list[dict[str, Any]] = []

    def save(self, folder: Path, state: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Copy the state now, write it in the background. An unfinished earlier save is waited for first.

        Args:
            folder, state: see `save_checkpoint`.
            then: called in the background once the checkpoint is safely there (removal of older ones).
        """
        began = time.perf_counter()
        self.wait()
        self._copies = [copy_arrays(*pair) for pair in zip(self._parameters, self._copies, strict=True)]
        event = {"event": "checkpoint", "update": state["update"], "stall_seconds": time.perf_counter() - began}
        arguments = (folder, dict(state), then, event)
        thread = threading.Thread(target=self._write, args=arguments, name="checkpoint")
        thread.start()
        self._thread = thread

    def poll(self) -> list[dict[str, Any]]:
        """Raise a failed save's error; else the events of saves that were completed since the last call.

        Returns:
            {"event": "checkpoint", "update", "stall_seconds", "write_seconds"} each: how long training waited, and how
            long the write took beside it.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        finished, self._finished = self._finished, []
        return finished

    def wait(self) -> None:
        """Wait until nothing is being written, and raise a failed save's error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            self.poll()

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception:
            if kind is None:  # else the loop's own error is on its way
                raise

    def _write(self, folder: Path, state: Mapping[str, Any], then: Callable[[], None], event: dict[str, Any]) -> None:
        began = time.perf_counter()
        weights, training = self._copies
        try:
            write_checkpoint(folder, weights, training, state)
            then()
            self._finished.append({**event, "write_seconds": time.perf_counter() - began})
        except OSError as error:
            self._error = no_room(folder, error, folder.parent.parent)
        except Exception as error:  # surfaces in the loop's own thread
            self._error = error
