"""tensorboardX's writer of events, loaded without PyTorch.

tensorboardX imports torch where it is installed, which is where people port from it, and needs it for tensors of torch
alone: 1.2 s of every start of a training, and 180 MB. It is told that there is none; `import torch` works afterwards.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # how Python notes that an import is to fail
    try:
        yield
    finally:
        del sys.modules[module]


with _without("torch"):
    import tensorboardX
    from tensorboardX.summary import hparams

__all__ = ["SummaryWriter", "hparams"]


class SummaryWriter(tensorboardX.SummaryWriter):
    """tensorboardX's, which keeps the error of a full disk. Its thread would end with it, and the next caller wait.

    Attributes:
        error: why nothing has been written since; None: all is well.
    """

    def __init__(self, folder: Path | str, **options: Any) -> None:
        super().__init__(str(folder), **options)
        self.error: OSError | None = None
        events = self.file_writer.event_writer._ev_writer
        for name in ("write_event", "flush", "close"):
            setattr(events, name, self._keep_error(getattr(events, name)))

    def _keep_error(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if self.error is None:
                try:
                    return write(*arguments)
                except OSError as error:
                    self.error = error

        return wrapped
