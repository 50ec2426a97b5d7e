"""The samples of an evaluation: each once, on exactly one worker."""

from collections.abc import Iterator

import numpy as np

from resnet_fn.data.dataset import Samples
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.runtime.workers import Workers


def eval_batches(
    split: Samples, spec: InputSpec, batch_size: int, workers: Workers = Workers(), block: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """This worker's part of an evaluation: every sample of the split goes to exactly one worker, once.

    Workers take turns at blocks of `block` samples; `batch_size` is a multiple of it. So a sample's place in its
    block is its number modulo `block`, whatever the number of workers and the batch size.

    All batches have the same size and all workers get as many, so that nothing recompiles and nobody waits for
    ever; what is missing at the end is filled with the split's first sample and marked.

    Yields:
        images float32 [batch_size, C, H, W], their labels (see `Samples`), indices int64 [batch_size]: the samples'
        places in the split, −1 where filled.
    """
    blocks = -(-len(split) // block)
    own = (np.arange(workers.rank, blocks, workers.size)[:, None] * block + np.arange(block)).ravel()
    own = own[own < len(split)]  # only the last block of all can be short
    most = -(-blocks // workers.size) * block
    batches = []
    for start in range(0, most, batch_size):
        indices = np.full(batch_size, -1)
        part = own[start : start + batch_size]
        indices[: len(part)] = part
        batches.append(indices)
    rows = [np.maximum(indices, 0) for indices in batches]
    for indices, images in zip(batches, split.eval_images(rows, spec), strict=True):
        yield images, split.labels[np.maximum(indices, 0)], indices
