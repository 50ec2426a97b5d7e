"""These functions compare workers' settings, data and weights.

If one worker calls a function, all must call it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from resnet_fn.config.packages import installed_version
from resnet_fn.config.values import show_value
from resnet_fn.config.wording import first_few
from resnet_fn.data.dataset import DataSet, Samples, Split
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.records import RecordSplit
from resnet_fn.runtime import versions
from resnet_fn.runtime.disk import sha256
from resnet_fn.runtime.process import kernel_choices
from resnet_fn.runtime.workers import Workers, gather_texts

_DIGITS = 12  # number of hexadecimal digits of a SHA-256 in messages
_SPLITS = {"train": "training images", "test": "validation images"}


def identify(split: Samples) -> dict[str, Any]:
    """Return a dict of JSON types that identifies a split.

    A resumed run compares it with the checkpoint's dict.
    """
    identity: dict[str, Any] = {"samples": len(split)}
    if isinstance(split, FileSplit | RecordSplit):
        identity["files"] = sha256(split.listing + split.labels.tobytes())
        if split.contents:
            identity["contents"] = sha256(split.contents)
    return identity


def require_alike(values: Mapping[str, Any], workers: Workers, fix: str) -> None:
    """Raise ValueError on all workers if an entry of `values` differs between workers."""
    text = json.dumps({name: show_value(value) for name, value in values.items()})
    first, *others = map(json.loads, gather_texts(text, workers))
    differences = [
        f"rank {rank}: {name} {entries.get(name) or 'none'}, rank 0: {first.get(name) or 'none'}"
        for rank, entries in enumerate(others, 1)
        for name in {**first, **entries}
        if entries.get(name) != first.get(name)
    ]
    if differences:
        raise ValueError(f"{first_few(differences, 5, '; ')}; {fix}")


def check_settings(workers: Workers, *configs: Any, **more: Any) -> None:
    """Raise ValueError if code, package versions, the choice of CPU kernels, `more` or shared
    settings of `configs` differ between workers.
    """
    if workers.size == 1:
        return
    values = {"resnet_fn's code": versions.sources()[:_DIGITS]}
    values |= {name: installed_version(name) for name in ("mindspore", "numpy", "pillow")}
    values |= kernel_choices()
    for config in configs:
        values |= {
            name: getattr(config, name)
            for name, declared in config.declarations.items()
            if not declared.per_worker
        }
    require_alike(
        values | more, workers, "start all workers with the same settings, code and versions"
    )


def check_data(workers: Workers, dataset: DataSet, splits: Iterable[str]) -> None:
    """Raise ValueError if classes or samples differ between workers.

    Image files are compared by name and size.
    """
    if workers.size == 1:
        return
    values = {
        "classes": _digest(name.encode("utf-8", "surrogateescape") for name in dataset.classes)
    }
    for name in splits:
        split: Any = getattr(dataset, name)
        contents = split.images if isinstance(split, Split) else split.listing + split.contents
        values[_SPLITS[name]] = f"{len(split)} ({_digest((split.labels, contents))})"
    require_alike(values, workers, "give all workers the same data")


def check_state(
    workers: Workers, parameters: Iterable[Any], class_weights: Iterable[float] = ()
) -> None:
    """Raise ValueError if parameters or class weights are not bitwise equal on all workers."""
    if workers.size == 1:
        return
    state = _digest(
        part for parameter in parameters for part in (parameter.name.encode(), parameter.numpy())
    )
    values = {"class_weights": _digest([np.array(class_weights)]), "weights and other state": state}
    require_alike(values, workers, "give all workers the same weights and the same checkpoint")


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.tobytes())
    return digest.hexdigest()[:_DIGITS]
