"""What is compared has what it would have on its own, and is measured as itself."""

import os
import subprocess
import sys

import numpy as np
import pytest

from resnet_fn.benchmark.interleave import Side
from resnet_fn.benchmark.sides import as_their_users

NAMES = ["MS_DEV_HOST_BLOCKING_RUN", "ONEDNN_MAX_CPU_ISA"]


def test_pytorch_may_use_all_of_the_machines_instructions():
    """The cap on oneDNN that MindSpore needs is not PyTorch's, which brings a oneDNN of its own."""
    pytest.importorskip("torch")
    code = "import torch; torch.nn.Conv2d(16, 16, 3)(torch.ones(64, 16, 16, 16))"
    own = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    alone = subprocess.run(
        [sys.executable, "-c", code], env={**own, "ONEDNN_VERBOSE": "1"}, capture_output=True, text=True, check=True
    ).stdout
    spec = {"model": "resnet8", "stem": "cifar", "batch_size": 2, "image_size": 8, "classes": 2, "threads": 1}
    with Side("torch", spec, ONEDNN_VERBOSE="1") as side:
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


def test_peak_memory_is_the_programs_own():
    """In bytes: 300 MB that are gone again count, 600 MB of the process that starts it do not."""
    held = np.ones(75_000_000)
    code = """
import numpy
from resnet_fn.benchmark.sides import peak_memory
before = peak_memory()
numpy.ones(37_500_000)
print(before, peak_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < 200e6 < held.nbytes
    assert 290e6 < after - before < 310e6
