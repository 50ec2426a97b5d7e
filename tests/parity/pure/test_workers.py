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

HERE, THERE = np.float32([1, 2]), np.float32([1, 3])
SAME = Stage(TRAIN_FORWARD, [difference(ArrayId("logits"), HERE, HERE, 1e-5)])


def test_a_failed_stage_of_another_worker_differs():
    stage = merged(SAME, [SAME, Stage(TRAIN_FORWARD, failed="other shapes")])
    assert stage.verdict == DIFFERS
    assert stage.failed == "worker 2: other shapes"


def test_an_undecided_stage_of_another_worker_is_undecided():
    stage = merged(SAME, [Stage(TRAIN_FORWARD, note="no tensors")])
    assert stage.verdict == UNDECIDED
    assert stage.undecided == "worker 1: no tensors"


def test_without_numbers_on_rank_0_nothing_is_decided():
    stage = merged(Stage(TRAIN_FORWARD, note="no tensors"), [SAME])
    assert (stage.verdict, stage.undecided) == (UNDECIDED, "no tensors")


def test_other_workers_decide_where_arrays_are_apart():
    doubtful = dataclasses.replace(SAME.differences[0], rounding=0.1, relative=0.2)
    assert doubtful.verdict == UNDECIDED
    apart = without_undecided(Stage(TRAIN_FORWARD, [doubtful]))
    differs = Stage(TRAIN_FORWARD, [difference(ArrayId("logits"), THERE, HERE, 1e-5)])
    for stages in ([apart, SAME], [SAME, apart]):
        assert merged(stages[0], stages[1:]).verdict == "ok"
    for stages in ([apart, differs], [differs, apart]):
        assert merged(stages[0], stages[1:]).verdict == DIFFERS
    assert merged(apart, [apart]).verdict == UNDECIDED


def test_what_another_worker_does_not_show_is_named():
    other = dataclasses.replace(SAME, too_small=["w"], not_exercised=["no padding"])
    stage = merged(dataclasses.replace(SAME, too_small=["w"]), [other])
    assert (stage.too_small, stage.not_exercised) == (["w"], ["no padding"])


@pytest.mark.parametrize("absent", [Absent.TOO_SHORT, Absent.CHAOTIC])
def test_without_statistics_of_workers_reasons_stay(absent):
    still, moved = ({"mean": np.float32([number])} for number in (0, 1))
    run = Run({}, still, [], own_statistics=moved)
    port = SimpleNamespace(run=run, workers=[SimpleNamespace(run=run)])
    stage = PortWorkers(port).without_moved(Stage(LAST, note="why", absent=absent))
    assert (stage.verdict, stage.absent, stage.note) == (SKIPPED, absent, "why")
    doubtful = dataclasses.replace(
        SAME.differences[0], id=ArrayId("mean"), rounding=0.1, relative=0.2
    )
    stage = PortWorkers(port).without_moved(without_undecided(Stage(LAST, [doubtful])))
    assert (stage.verdict, stage.left_out) == (SKIPPED, [])


def test_what_all_workers_share_is_shown_once():
    failed = Stage(TRAIN_FORWARD, failed="other shapes")
    assert merged(failed, [failed, failed]).failed == "other shapes"


def test_a_difference_of_another_worker_has_its_rank():
    other = Stage(TRAIN_FORWARD, [difference(ArrayId("logits"), THERE, HERE, 1e-5)])
    stage = merged(SAME, [SAME, other])
    assert [one.id.worker for one in stage.differences] == [None, 2]
    assert stage.verdict == DIFFERS


def test_notes_of_other_workers_are_kept():
    earlier = dataclasses.replace(SAME, note="rounding decides", absent=Absent.CHAOTIC)
    stage = merged(SAME, [SAME, earlier])
    assert (stage.note, stage.absent) == ("worker 2: rounding decides", Absent.CHAOTIC)
