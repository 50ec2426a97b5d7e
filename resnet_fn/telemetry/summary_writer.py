"""tensorboardX's writer of events, loaded without PyTorch.

tensorboardX imports torch where it is installed, which is where people port from it, and needs it for tensors of torch
alone: 1.2 s of every start of a training, and 180 MB. It is told that there is none; `import torch` works afterwards.
"""

import contextlib
import sys
from collections.abc import Iterator


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
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

__all__ = ["SummaryWriter", "hparams"]
