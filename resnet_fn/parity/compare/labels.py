"""Find out what the batches' labels hide: classes without a label, constant labels."""

from collections.abc import Iterator, Sequence

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.plan import MEAN_SIZE
from resnet_fn.parity.trace.tree import named_leaves


def lines_of_labels(reference: Trace) -> Iterator[str]:
    """Yield lines for labels that lack classes of the first output, that are constant, such as
    weights of samples, or that are one-hot, so that a port may take the class alone.
    """
    if reference.plan.loss.name == MEAN_SIZE:
        return
    outputs = next(
        iter(reference.run.eval_outputs.values()),
        np.zeros(()),
    )
    every: dict[str, list[np.ndarray]] = {}
    for _, labels in reference.plan.batches:
        for name, leaf in named_leaves(labels, "labels").items():
            every.setdefault(name, []).append(leaf)
    for name, leaves in every.items():
        flat = [leaf.ravel() for leaf in leaves]
        values = np.unique(np.concatenate(flat))
        first = leaves[0]
        classes = _classes(outputs.shape, first)
        missing = set(range(classes)) - set(values.tolist())
        if missing:
            absent = first_few(list(map(str, sorted(missing))))
            yield f"{name}: of {classes} classes, no label is {absent}"
        elif len(values) == 1 and first.size > 1:
            yield f"{name}: always {values[0]}"
        elif first.ndim > 1 and all(map(_are_one_hot, leaves)):
            yield f"{name}: only 0 and 1"
        if _hide_equally_many(leaves):
            yield f"{name}: as many negative ones in each sample"


def _hide_equally_many(leaves: Sequence[np.ndarray]) -> bool:
    """Return whether a part of the labels is negative, as those that a loss ignores, and as many in
    each sample: then the mean of all labels is the mean of the samples' means.
    """
    counts = set()
    for leaf in leaves:
        if leaf.ndim < 2 or leaf.dtype.kind != "i" or len(leaf) < 2:
            return False
        rows = leaf.reshape(len(leaf), -1)
        counts |= {*(rows < 0).mean(1)}
    return len(counts) == 1 and counts.isdisjoint((0.0, 1.0))


def _are_one_hot(labels: np.ndarray) -> bool:
    """Return whether labels are floats of which one in each row is 1, and all others are 0."""
    if labels.dtype.kind != "f":
        return False
    ones = labels == 1
    return bool((ones.sum(-1) == 1).all()) and not labels[~ones].any()


def _classes(outputs: tuple[int, ...], labels: np.ndarray) -> int:
    """Return the size of the outputs' axis of classes, the last or second one; 0: there is none, or
    labels are no classes.
    """
    if labels.dtype.kind not in "iu":
        return 0
    if len(outputs) < 2:
        return 0
    for axis in (-1, 1):
        others = np.delete(outputs, axis)
        if others.tolist() == list(labels.shape):
            return outputs[axis]
    return 0
