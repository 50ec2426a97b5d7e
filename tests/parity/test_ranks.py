"""Two real workers against one: right steps agree, and each fault is named by stage and
parameter.
"""

import contextlib
import dataclasses
import json
import shutil

import pytest

from resnet_fn.parity import __main__ as command
from resnet_fn.parity.ladder import compare_recordings
from resnet_fn.parity.pair.matching import match, outline_of
from resnet_fn.parity.show.titles import title_of
from resnet_fn.parity.trace.folder import load_recording
from resnet_fn.parity.trace.ranks import check_shares
from resnet_fn.parity.trace.stages import SUM

# Nets, a loss that leaves samples out, and steps as people write them, each with one fault or none.
OURS = """
from functools import partial
from types import SimpleNamespace
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops, value_and_grad

class Net(nn.Cell):
    def __init__(self, norm=None):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), norm or nn.BatchNorm2d(8), nn.Dense(8, 5)
    def construct(self, x):
        return self.head(ops.relu(self.norm(self.conv(x))).mean((2, 3)))

def of_labelled(outputs, labels):
    labelled = (labels >= 0).astype(outputs.dtype)
    return (ops.cross_entropy(outputs, ops.relu(labels), reduction="none") * labelled).sum() / labelled.sum()
def batches():
    images = np.random.default_rng(0).standard_normal((2, 8, 3, 8, 8)).astype(np.float32)
    return [(one, np.array([0, -1, -1, -1, 1, 2, 3, -1], np.int32)) for one in images]

def make_step(fault, net, loss, optimizer, *, plan, workers, **_others):
    weights = ParameterTuple(net.trainable_params())
    head, bias = (index for index, one in enumerate(weights) if one.name.startswith("head."))
    differentiate = value_and_grad(lambda x, y: loss(net(x), y), None, weights)
    statistics = [one for one in net.get_parameters() if "moving" in one.name]
    def total(one):
        return workers.all_reduce((one,))[0]
    def step(images, labels, rate):
        net.set_train(True)
        value, gradients = differentiate(images, labels)
        count = (labels >= 0).sum().astype(value.dtype)
        weight = count / total(count) if fault == "weighed" else 1 / workers.size
        own = [one * weight for one in gradients]
        left_out = [own.pop(bias)] if fault == "left out" else []
        sums = [*workers.all_reduce(own)]
        sums[bias:bias] = left_out
        sums[head] *= workers.size if fault == "summed" else 1
        squares = [(one * one).sum() for one in (own if fault == "own norm" else sums)]
        for i in {"counted": [head], "all counted": range(len(squares))}.get(fault, ()):
            squares[i] *= workers.size
        norm = ops.sqrt(sum(squares))
        factor = ops.minimum(plan.clip_norm / norm, Tensor(1.0)) if plan.clip_norm else 1.0
        optimizer.update([one * factor for one in sums], rate)
        for one in statistics if fault != "own statistics" else ():
            ops.assign(one, total(one * (workers.rank == 0) if fault == "first statistics" else one / workers.size))
        return SimpleNamespace(loss=value if fault == "own loss" else total(value * weight), grad_norm=norm)
    return step
plain = lambda: Net(nn.SequentialCell(nn.GroupNorm(2, 8), nn.Dropout(p=0.5)))
"""
STATISTICS, BOTH = "BatchNorm statistics after update 1", "norm.moving_mean, norm.moving_variance: "
FAULTS = {
    "own loss": ("loss", "loss of its own share"),
    "summed": ("gradients", "head.weight: 2 times the reference's"),
    "left out": ("gradients", "head.bias: each worker has other values; sum them"),
    "own norm": ("gradient norm", "the norm of its own gradients"),
    "counted": ("gradient norm", "head.weight: counted 2 times"),
    "all counted": ("gradient norm", "every parameter: counted 2 times"),
    "own statistics": (STATISTICS, f"{BOTH}each worker keeps the statistics of its own share"),
    "first statistics": (STATISTICS, f"{BOTH}the statistics of rank 0 alone"),
    "means": ("loss", "the mean of the workers' means"),
}
RIGHT = ("right", "own", "weighed", "means of parts")
STEPS = {name: name.replace(" ", "_") for name in ("right", *FAULTS, "weighed")}
OURS += "".join(f"{function} = partial(make_step, {name!r})\n" for name, function in STEPS.items())
BATCHNORM = (
    "--net ours.py:Net --steps 2 --image-size 8 --batch-size 8 --num-classes 5 --clip-norm 0.05 "
)
PLAIN = "--net ours.py:plain --loss ours.py:of_labelled --inputs ours.py:batches --clip-norm 0 --probes none "
ONE = {"one": f"{BATCHNORM} --accumulate 2", "whole": PLAIN, "parts": f"{PLAIN} --accumulate 2"}
STEP = "--mode pynative --our-step ours.py:"  # compiled is the package's own alone
RUNS = {name: f"{ONE['one']} --probes none {STEP}{function}" for name, function in STEPS.items()}
RUNS |= {name: f"{PLAIN} {STEP}{name}" for name in ("means", "weighed")} | {"own": ONE["one"]}
RUNS["means of parts"] = f"{ONE['parts']} {STEP}means"
AGAINST = {"means": "whole", "weighed": "whole", "means of parts": "parts"}
PROGRAM = f"""
from resnet_fn.parity.__main__ import main
from resnet_fn.parity.trace.stages import SUM
for name, flags in {RUNS!r}.items():
    main(["record", *flags.split(), "--out", name])
"""
pytestmark = pytest.mark.slow  # one launch for all


@pytest.fixture(scope="module")
def compared(device, python, tmp_path_factory):
    """compared(name): the exit code and JSON of a comparison, and the folder of all traces."""
    folder = tmp_path_factory.mktemp("traces")
    (folder / "ours.py").write_text(OURS)
    python(
        "-m",
        "resnet_fn.launch",
        "--workers",
        "2",
        "--",
        "python",
        "-c",
        PROGRAM,
        cwd=folder,
        seconds=600,
    )
    with contextlib.chdir(folder):
        for name, flags in ONE.items():
            assert command.main(["record", *flags.split(), "--out", name]) == 0

    def compare(name):
        file = folder / "ladder.json"
        code = command.main(
            [
                "compare",
                *(f"{folder}/{one}" for one in (name, AGAINST.get(name, "one"))),
                f"--json={file}",
            ]
        )
        return code, json.loads(file.read_text()), folder

    return compare


@pytest.mark.parametrize("name", RIGHT)
def test_right_steps_of_two_workers_agree(name, compared, capsys):
    code, ladder, _ = compared(name)
    stages, out = (
        {stage["name"]: len(stage["differences"]) for stage in ladder["stages"]},
        capsys.readouterr().out,
    )
    assert code == 0, out
    assert (stages["sum over the workers"], stages[STATISTICS]) == (
        2 * 5,
        0 if name in AGAINST else 2 * 2,
    )
    assert ("counts differ between workers" in out) == (name == "means of parts")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_several_workers_is_named(fault, compared, capsys):
    code, ladder, _ = compared(fault)
    stage, words = FAULTS[fault]
    assert (code, ladder["first_stage"]) == (1, stage), capsys.readouterr().out
    assert any(
        words in hint for one in ladder["stages"] if one["name"] == stage for hint in one["hints"]
    )


def test_traces_that_do_not_belong_together_are_rejected(compared, tmp_path, says):
    folder = compared("right")[2]
    ours, theirs = load_recording(folder / "right"), load_recording(folder / "one")
    names = match(outline_of(ours, "train"), outline_of(theirs, "train"), None)
    worker = ours.workers[1].run
    worker.received["norm.gamma"] = worker.sent["norm.gamma"]
    stage = compare_recordings(ours, theirs, names).first_stage
    assert (stage.id, title_of(stage.first.id)) == (SUM, "norm.gamma of rank 1")
    with pytest.raises(ValueError, match="several workers"):
        compare_recordings(theirs, ours, names)
    shutil.copytree(folder / "right", tmp_path / "mixed")
    shutil.copytree(folder / "summed/rank-1", tmp_path / "mixed/rank-1", dirs_exist_ok=True)
    with pytest.raises(ValueError) as error:
        load_recording(tmp_path / "mixed")
    says(error, "mixed", "another run", "record it again")
    for accumulate, workers, batchnorm, words in (
        (4, 3, False, "give accumulate 3 in"),
        (1, 2, True, "BatchNorm"),
    ):
        with pytest.raises(ValueError) as error:
            check_shares(dataclasses.replace(ours.plan, accumulate=accumulate), workers, batchnorm)
        says(error, f"accumulate: {accumulate} must be a multiple of {workers}", words)
