"""Two real workers against one: right steps agree, and each fault is named by stage and parameter."""

import contextlib
import dataclasses
import json
import shutil

import pytest

from resnet_fn.parity import __main__ as command
from resnet_fn.parity.ladder import compare_recordings
from resnet_fn.parity.matching import match, side_of
from resnet_fn.parity.ranks import SUM, check_shares
from resnet_fn.parity.trace_folder import load_recording
from resnet_fn.runtime.disk import sha256_of_file

# Nets, a loss that leaves samples out, and steps as people write them, each with one fault or none.
OURS = """
from typing import NamedTuple

import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops, value_and_grad


class Net(nn.Cell):
    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, has_bias=False), norm, nn.Dense(8, 5)

    def construct(self, x):
        return self.head(ops.relu(self.norm(self.conv(x))).mean((2, 3)))


def with_batchnorm():
    return Net(nn.BatchNorm2d(8))


def plain():
    return Net(nn.GroupNorm(2, 8))


def of_labelled(outputs, labels):
    labelled = (labels >= 0).astype(outputs.dtype)
    return (ops.cross_entropy(outputs, ops.relu(labels), reduction="none") * labelled).sum() / labelled.sum()


def batches():
    rng = np.random.default_rng(0)
    images = [rng.standard_normal((8, 3, 8, 8)).astype(np.float32) for _ in range(2)]
    return [(one, np.array([0, -1, -1, -1, 1, 2, 3, -1], np.int32)) for one in images]


class Result(NamedTuple):
    loss: Tensor
    grad_norm: Tensor


def step_of(fault):
    def make_step(net, loss, optimizer, *, plan, workers, **_others):
        weights = ParameterTuple(net.trainable_params())
        head, bias = (next(i for i, one in enumerate(weights) if one.name == f"head.{name}") for name in ("weight", "bias"))
        differentiate = value_and_grad(lambda x, y: loss(net(x), y), None, weights)
        statistics = [one for one in net.get_parameters() if "moving" in one.name]

        def total(one):
            return workers.all_reduce((one,))[0]

        def step(images, labels, rate):
            net.set_train(True)
            value, gradients = differentiate(images, labels)
            weight = 1 / workers.size
            if fault == "weighed":
                labelled = (labels >= 0).sum().astype(value.dtype)
                weight = labelled / total(labelled)
            own = [one * weight for one in gradients]
            left_out = [own.pop(bias)] if fault == "left out" else []
            sums = [*workers.all_reduce(own)]
            sums[bias:bias] = left_out
            if fault == "summed":
                sums[head] = sums[head] * workers.size
            squares = [(one * one).sum() for one in (own if fault == "own norm" else sums)]
            for i in {"counted": [head], "all counted": range(len(squares))}.get(fault, ()):
                squares[i] = squares[i] * workers.size
            norm = ops.sqrt(sum(squares))
            factor = ops.minimum(plan.clip_norm / norm, Tensor(1.0)) if plan.clip_norm else 1.0
            optimizer.update([one * factor for one in sums], rate)
            for one in statistics if fault != "own statistics" else ():
                first = one * (workers.rank == 0) if fault == "first statistics" else one / workers.size
                ops.assign(one, total(first))
            return Result(value if fault == "own loss" else total(value * weight), norm)

        return step

    return make_step


"""
STATISTICS, BOTH = "BatchNorm statistics after update 1", "norm.moving_mean, norm.moving_variance: "
FAULTS = {
    "own loss": ("loss", "loss of its own share"),
    "summed": ("gradients", "head.weight: 2 times the reference's"),
    "left out": ("gradients", "head.bias: other values on each worker: it is not summed"),
    "own norm": ("gradient norm", "the norm of its own gradients"),
    "counted": ("gradient norm", "head.weight: counted 2 times"),
    "all counted": ("gradient norm", "every parameter: counted 2 times"),
    "own statistics": (STATISTICS, f"{BOTH}each worker keeps those of its own share"),
    "first statistics": (STATISTICS, f"{BOTH}those of rank 0 alone"),
    "means": ("loss", "the mean of the workers' means"),
}
RIGHT = ("right", "own", "weighed", "means of parts")
STEPS = ("right", *FAULTS, "weighed")
OURS += "".join(f"{name.replace(' ', '_')} = step_of({name!r})\n" for name in STEPS)
BATCHNORM = "--net ours.py:with_batchnorm --steps 2 --image-size 8 --batch-size 8 --num-classes 5 --clip-norm 0.05 "
PLAIN = "--net ours.py:plain --loss ours.py:of_labelled --inputs ours.py:batches --clip-norm 0 "
ONE = {"one": f"{BATCHNORM} --accumulate 2", "whole": PLAIN, "parts": f"{PLAIN} --accumulate 2"}
RUNS = {name: f"{ONE['one']} --our-step ours.py:{name.replace(' ', '_')}" for name in STEPS}
RUNS |= {name: f"{PLAIN} --our-step ours.py:{name}" for name in ("means", "weighed")} | {"own": ONE["one"]}
RUNS["means of parts"] = f"{ONE['parts']} --our-step ours.py:means"
AGAINST = {"means": "whole", "weighed": "whole", "means of parts": "parts"}
PROGRAM = f"""
from resnet_fn.parity.__main__ import main
for name, flags in {RUNS!r}.items():
    main(["record", *flags.split(), "--out", name])
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compared(device, python, tmp_path_factory):
    """compared(name): the exit code and JSON of a comparison, and the folder of all traces."""
    folder = tmp_path_factory.mktemp("traces")
    (folder / "ours.py").write_text(OURS)
    (folder / "program.py").write_text(PROGRAM)
    python("-m", "resnet_fn.launch", "--workers", "2", "--", "python", "program.py", cwd=folder, seconds=600)
    with contextlib.chdir(folder):
        for name, flags in ONE.items():
            assert command.main(["record", *flags.split(), "--out", name]) == 0

    def compare(name):
        words = ["compare", folder / name, folder / AGAINST.get(name, "one"), "--json", folder / "ladder.json"]
        code = command.main([*map(str, words)])
        return code, json.loads((folder / "ladder.json").read_text()), folder

    return compare


@pytest.mark.parametrize("name", RIGHT)
def test_right_steps_agree(name, compared, capsys):
    code, ladder, _ = compared(name)
    stages, out = {stage["name"]: stage for stage in ladder["stages"]}, capsys.readouterr().out
    assert code == 0, out
    assert len(stages[SUM]["differences"]) == 2 * 5
    assert len(stages[STATISTICS]["differences"]) == (2 * 2 if AGAINST.get(name) is None else 0)
    assert ("counts differ" in out) == (name == "means of parts")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault, compared, capsys):
    code, ladder, _ = compared(fault)
    stage, words = FAULTS[fault]
    assert (code, ladder["first_stage"]) == (1, stage), capsys.readouterr().out
    assert any(words in hint for one in ladder["stages"] if one["name"] == stage for hint in one["hints"])


def test_an_all_reduce_that_does_not_sum_is_named(compared):
    _, _, folder = compared("right")
    ours, theirs = load_recording(folder / "right"), load_recording(folder / "one")
    names = match(side_of(ours, "train"), side_of(theirs, "train"), None)
    ours.ranks[1].received["norm.gamma"] = ours.ranks[1].sent["norm.gamma"]
    stage = compare_recordings(ours, theirs, names).first_stage
    assert (stage.name, stage.first.name) == (SUM, "norm.gamma of rank 1")
    with pytest.raises(ValueError, match="several workers"):
        compare_recordings(theirs, ours, names)


def test_folders_of_two_runs_are_rejected(compared, tmp_path, says):
    _, _, folder = compared("right")
    shutil.copytree(folder / "right", tmp_path / "mixed")
    assert sha256_of_file(folder / "right/rank-1/manifest.json") != sha256_of_file(
        folder / "summed/rank-1/manifest.json"
    )
    shutil.rmtree(tmp_path / "mixed/rank-1")
    shutil.copytree(folder / "summed/rank-1", tmp_path / "mixed/rank-1")
    with pytest.raises(ValueError) as error:
        load_recording(tmp_path / "mixed")
    says(error, "mixed", "another run", "record it again")


def test_shares_must_be_micro_batches(compared, says):
    task = load_recording(compared("right")[2] / "one").task
    check_shares(task, 2, True)
    for accumulate, workers, batchnorm, words in ((4, 3, False, "multiple of 3"), (1, 2, True, "BatchNorm")):
        with pytest.raises(ValueError) as error:
            check_shares(dataclasses.replace(task, accumulate=accumulate), workers, batchnorm)
        says(error, f"accumulate: {accumulate} with {workers} workers", words)
