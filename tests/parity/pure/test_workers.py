"""What a stage shows of workers: rank 0's comparison, and all that other ranks have different."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from resnet_fn.parity.compare.stage import SKIPPED, Absent, Stage, without_undecided
from resnet_fn.parity.compare.workers import PortWorkers, merged
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, difference
from resnet_fn.parity.trace.stages import LAST, TRAIN_FORWARD, ArrayId

RANK_0, OTHER = np.float32([1, 2]), np.float32([1, 3])
SAME, APART = (
    Stage(TRAIN_FORWARD, [difference(ArrayId("logits"), array, RANK_0, 1e-5)])
    for array in (RANK_0, OTHER)
)
FAILED = Stage(TRAIN_FORWARD, failed="other shapes")
UNREAD = Stage(TRAIN_FORWARD, note="no tensors")
DOUBTFUL = dataclasses.replace(SAME.differences[0], rounding=0.1, relative=0.2)


def test_a_failed_stage_of_another_worker_differs():
    stage = merged(SAME, [SAME, FAILED])
    assert (stage.verdict, stage.failed) == (DIFFERS, "worker 2: other shapes")


def test_what_all_workers_share_is_shown_once():
    assert merged(FAILED, [FAILED, FAILED]).failed == "other shapes"


def test_an_undecided_stage_of_any_worker_is_undecided():
    for stage, reason in (
        (merged(SAME, [UNREAD]), "worker 1: no tensors"),
        (merged(UNREAD, [SAME]), "no tensors"),
    ):
        assert (stage.verdict, stage.undecided) == (UNDECIDED, reason)


def test_other_workers_decide_where_arrays_are_apart():
    assert DOUBTFUL.verdict == UNDECIDED
    doubtful = without_undecided(Stage(TRAIN_FORWARD, [DOUBTFUL]))
    for other, expected in ((SAME, "ok"), (APART, DIFFERS), (doubtful, UNDECIDED)):
        assert merged(doubtful, [other]).verdict == expected
        assert merged(other, [doubtful]).verdict == expected


def test_what_another_worker_does_not_show_is_named():
    small = dataclasses.replace(SAME, too_small=["w"])
    stage = merged(small, [dataclasses.replace(small, not_exercised=["no padding"])])
    assert (stage.too_small, stage.not_exercised) == (["w"], ["no padding"])


@pytest.mark.parametrize("absent", [Absent.TOO_SHORT, Absent.CHAOTIC])
def test_without_statistics_of_workers_reasons_stay(absent):
    still, moved = ({"mean": np.float32([number])} for number in (0, 1))
    run = Run({}, still, [], own_statistics=moved)
    workers = PortWorkers(SimpleNamespace(run=run, workers=[SimpleNamespace(run=run)]))
    stage = workers.without_moved(Stage(LAST, note="why", absent=absent))
    assert (stage.verdict, stage.absent, stage.note) == (SKIPPED, absent, "why")
    doubtful = dataclasses.replace(DOUBTFUL, id=ArrayId("mean"))
    stage = workers.without_moved(without_undecided(Stage(LAST, [doubtful])))
    assert (stage.verdict, stage.left_out) == (SKIPPED, [])


def test_a_difference_of_another_worker_has_its_rank():
    stage = merged(SAME, [SAME, APART])
    assert [item.id.worker for item in stage.differences] == [None, 2]
    assert stage.verdict == DIFFERS


def test_notes_of_other_workers_are_kept():
    earlier = dataclasses.replace(SAME, note="rounding decides", absent=Absent.CHAOTIC)
    stage = merged(SAME, [SAME, earlier])
    assert (stage.note, stage.absent) == ("worker 2: rounding decides", Absent.CHAOTIC)
