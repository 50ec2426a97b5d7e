"""This module describes the workers of a run and exchanges values between all workers."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import suggest_name
from resnet_fn.runtime.launchers import check_pod

Reduce = Callable[[Sequence[Any]], Sequence[Any]]


class Workers(NamedTuple):
    """The rank of this worker and the number of workers.

    Attributes:
        rank: Number of this worker, from 0.
        size: Number of workers.
        all_reduce: Function that sums tensors over all workers; None before `with_all_reduce`, or
            for one worker.
    """

    rank: int = 0
    size: int = 1
    all_reduce: Reduce | None = None

    @property
    def is_main(self) -> bool:
        """Return whether this is rank 0, which writes the files and the log of a run."""
        return self.rank == 0


def join(device: str = "CPU") -> Workers:
    """Join the other workers if msrun started this process.

    The call never returns in msrun's scheduler process.
    """
    global _joined
    if _joined is None:
        _joined = _join(device) if "MS_ROLE" in os.environ else Workers()
    return _joined


_joined: Workers | None = None


def _join(device: str) -> Workers:
    check_pod()
    roles = ("MS_WORKER", "MS_SCHED")
    role = os.environ["MS_ROLE"]
    if role not in roles:
        raise ValueError(f"MS_ROLE: {role!r} is unknown; {suggest_name(role, roles)}")
    from mindspore import communication

    from resnet_fn.runtime import failed_worker, scheduler

    if role == "MS_SCHED":
        scheduler.check_port()
        scheduler.end_unused_scheduler()
        if device == "CPU":  # a card's driver may have threads already
            scheduler.wait_for_workers_then_exit()
    communication.init({"CPU": "mccl", "Ascend": "hccl"}[device])
    scheduler.end_with_scheduler()
    workers = Workers(communication.get_rank(), communication.get_group_size())
    if workers.size > 1:
        failed_worker.end_job_after_error(workers.rank)
    return workers


def sum_over_ranks(values: np.ndarray, workers: Workers) -> np.ndarray:
    """Sum a float32 array over all workers.

    Sums of integers up to 2^24 are exact. Every worker must call this.
    """
    if workers.size == 1:
        return values
    from mindspore import Tensor, ops

    return ops.AllReduce(ops.ReduceOp.SUM)(Tensor(np.ascontiguousarray(values, np.float32))).numpy()


def exchange_numbers(values: np.ndarray, workers: Workers) -> np.ndarray:
    """Sum int64 arrays of all workers.

    Each number is below 2^48 on one worker, else 0. Every worker must call this.
    """
    # float32 holds the 24 bits of each half exactly
    halves = np.stack(np.divmod(values, 2**24)).astype(np.float32)
    upper, lower = sum_over_ranks(halves, workers).astype(np.int64)
    return upper * 2**24 + lower


def barrier(workers: Workers) -> None:
    """Wait until every worker has called this function."""
    sum_over_ranks(np.zeros(1, np.float32), workers)


def gather_texts(text: str, workers: Workers) -> list[str]:
    """Return the `text` of every worker, in their order. Every worker must call this."""
    if workers.size == 1:
        return [text]
    data = text.encode("utf-8", "surrogateescape")  # a path may contain bytes that are not UTF-8
    # first, because all workers must sum arrays of one shape
    lengths = np.zeros(workers.size, np.int64)
    lengths[workers.rank] = len(data)
    lengths = exchange_numbers(lengths, workers)
    rows = np.zeros((workers.size, max(1, *lengths)), np.float32)
    rows[workers.rank, : len(data)] = np.frombuffer(data, np.uint8)
    texts = zip(sum_over_ranks(rows, workers).astype(np.uint8), lengths, strict=True)
    return [bytes(row[:length]).decode("utf-8", "surrogateescape") for row, length in texts]


def broadcast_text(text: str, workers: Workers) -> str:
    """Return the `text` of rank 0 on every worker. Every worker must call this."""
    return gather_texts(text if workers.is_main else "", workers)[0]
