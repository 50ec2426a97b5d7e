"""The train command on a worker with a fault of its own: faulty_worker.py FAULT RANK FLAGS…

nan-batch: rank RANK's images of update 8 hold a NaN. die-in-save: it is killed half-way through a
checkpoint. die-in-step: it is killed while the others wait for it in an all-reduce.
error-in-save: no checkpoint can be saved once the launcher was killed. term-in-evaluation: it
alone gets a SIGTERM while it evaluates. error-in-evaluation: something else than a sample fails
there. error-in-batch: there is no memory for the images of update 8. error-after-update: this
worker alone fails after update 8, while the others wait for it in the next one. The faults are in
this file alone.
"""

import errno
import os
import signal
import sys

import numpy as np

from resnet_fn.checkpoint import folder as checkpoint
from resnet_fn.config import cli
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.evaluation import scoring
from resnet_fn.run import loop
from resnet_fn.train import main

FAULT, RANK, *FLAGS = sys.argv[1:]
STARTED_BY = os.getppid()
batch = MemoryFeed.batch
rename = checkpoint.Path.rename
eval_batches = scoring.eval_batches
log_update = loop.log_update


def faulty_batch(self, update):
    images, labels = batch(self, update)
    if update == 7:
        if FAULT == "nan-batch":
            images = images.copy()
            images[5, 0, 3, 3] = np.nan
        elif FAULT == "die-in-step":
            os.kill(os.getpid(), signal.SIGKILL)
        elif FAULT == "error-in-batch":
            raise MemoryError("no room")
    return images, labels


def launcher_is_gone():
    """Whether this run's launcher has been killed: then this process has another parent."""
    return os.getppid() != STARTED_BY


def dying_rename(path, target):
    if FAULT == "die-in-save" and "step-00000007" in path.name:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "error-in-save" and launcher_is_gone():
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    return rename(path, target)


def signalled_eval_batches(*arguments):
    if FAULT == "term-in-evaluation":
        os.kill(os.getpid(), signal.SIGTERM)
    if FAULT == "error-in-evaluation":
        raise OSError(errno.EIO, "Input/output error", "disk")
    return eval_batches(*arguments)


def faulty_log_update(run, *arguments):
    if FAULT == "error-after-update" and run.progress.update == 8:
        raise OSError(errno.EIO, "Input/output error", "disk")
    log_update(run, *arguments)


# The rank that msrun gives this process; its scheduler runs this file too, with rank 0, and never
# gets to training.
if os.environ.get("RANK_ID") == RANK:
    MemoryFeed.batch = faulty_batch
    checkpoint.Path.rename = dying_rename
    scoring.eval_batches = signalled_eval_batches
    loop.log_update = faulty_log_update

if __name__ == "__main__":
    cli.run("train", main, FLAGS)
