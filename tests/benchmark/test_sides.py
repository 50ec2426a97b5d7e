"""What is compared: who runs when, the same net on all sides, each with what it would have on its own."""

import math
import os

import numpy as np
import pytest

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import NETS, build, specification
from resnet_fn.benchmark.sides import as_their_users
from resnet_fn.runtime import versions

NAMES = ["MS_DEV_HOST_BLOCKING_RUN", "ONEDNN_MAX_CPU_ISA"]
SMALL = {"model": "resnet8", "stem": "cifar", "batch_size": 2, "image_size": 8, "classes": 2, "threads": 1}
# torchvision's and timm's counts with 1,000 classes (GENet: the paper's θ⁺, as in tests/models); with 10 classes
# ResNet-18 with a 3x3 stem, and ResNet-20 as in the paper but for its shortcuts, which are 1x1 convolutions here.
WEIGHTS = {
    "resnet18-cifar": 11_689_512 - 990 * 513 - 64 * 3 * (49 - 9),
    "resnet50-224": 25_557_032,
    "se_resnet50-224": 25_557_032 + 2_514_944 + 16_048,
    "genet50_plus-224": 25_557_032 + 5_519_360 + 30_208 + 2_514_944 + 16_048,
    "resnet20-cifar": 272_474,
    "resnet20-digits": 272_474,
    "resnet8-digits": 78_042,
}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", NETS)
def test_both_sides_build_the_net_of_the_name(name):
    """What the nets compute is compared in tests/parity/torch_side/test_reference.py, forward and backward."""
    pytest.importorskip("torch")
    from resnet_fn.benchmark.sides import torch_net

    spec = specification(name, threads=1)
    ours = sorted(parameter.shape for parameter in build(spec).trainable_params())
    theirs = sorted(tuple(parameter.shape) for parameter in torch_net(spec).parameters())
    assert ours == theirs
    assert sum(map(math.prod, ours)) == WEIGHTS[name]


def test_every_other_round_goes_in_reverse_and_each_turn_gives_its_median():
    order = []

    def side(name, seconds):
        def run(steps):
            order.append((name, steps))
            return seconds.pop(0)

        return run

    runs = {"a": side("a", [[1.0, 9.0, 2.0], [3.0]]), "b": side("b", [[5.0, 7.0], [8.0, 8.0]])}
    assert interleave(runs, rounds=2, steps=3) == {"a": [2.0, 3.0], "b": [6.0, 8.0]}
    assert order == [("a", 3), ("b", 3), ("b", 3), ("a", 3)]


def test_ratios_are_taken_round_by_round():
    medians = {"ours": [1.0, 2.0, 4.0], "torch": [2.0, 3.0, 4.0], "other": [1.0, 1.0, 1.0]}
    assert ratios(medians) == {
        "torch": {"median": 1.5, "min": 1.0, "max": 2.0},
        "other": {"median": 0.5, "min": 0.25, "max": 1.0},
    }


def test_a_side_trains_on_request_and_reports_its_memory(monkeypatch):
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    with Side("ours", SMALL) as side:
        assert len(side.run(3)) == 3
        # MindSpore 2.7 and 2.8 had kernels that oneDNN's log does not show.
        assert any("convolution" in line for line in side.log) == versions.avx512_convolutions_are_slow()
    facts = side.facts
    assert facts["peak_bytes"] > 50 * 2**20
    assert 0 < facts["first_step_seconds"] < facts["ready_seconds"]


def test_a_side_that_cannot_run_says_why():
    with pytest.raises(ValueError, match=r"ours: cannot run here \(KeyError: 'threads'\); compare without it"):
        Side("ours", {})


def test_pytorch_may_use_all_of_the_machines_instructions(monkeypatch, python):
    """The cap on oneDNN that MindSpore needs is not PyTorch's, which brings a oneDNN of its own."""
    pytest.importorskip("torch")
    code = "import torch; torch.nn.Conv2d(16, 16, 3)(torch.ones(64, 16, 16, 16))"
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    alone = python("-c", code, without="ONEDNN_MAX_CPU_ISA").stdout
    with Side("torch", SMALL) as side:
        compared = "".join(side.log)

    def instructions(log):
        return [line for line in log.splitlines() if "info,cpu,isa:" in line]

    assert instructions(alone) == instructions(compared) != []


@pytest.mark.parametrize(("kind", "left"), [("torch", []), ("model_train", ["ONEDNN_MAX_CPU_ISA"]), ("ours", NAMES)])
def test_what_is_set_for_our_mindspore_is_not_in_the_way_of_others(kind, left, monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "set")
    as_their_users(kind)
    assert [name for name in NAMES if name in os.environ] == left


def test_peak_memory_is_the_programs_own(python):
    """In bytes: 300 MB that are gone again count, 600 MB of the process that starts it do not."""
    held = np.ones(75_000_000)
    code = """
import numpy
from resnet_fn.benchmark.sides import peak_memory
before = peak_memory()
numpy.ones(37_500_000)
print(before, peak_memory())
"""
    before, after = map(int, python("-c", code).stdout.split())
    assert before < 200e6 < held.nbytes
    assert 290e6 < after - before < 310e6
