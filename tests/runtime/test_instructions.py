"""Which instructions MindSpore's kernels may use on a processor."""

import os
import platform

import pytest

from resnet_fn.runtime import instructions
from resnet_fn.runtime.instructions import PRODUCTS, STANDARD, Choice, Cpu, choose

ZEN_5 = Cpu(26, 2, True)
ZEN_4 = Cpu(25, 17, True)
XEON = Cpu(6, 167, True)
WITHOUT = Cpu(25, 1, False)


@pytest.fixture(autouse=True)
def _mindspore(monkeypatch):
    monkeypatch.setattr(instructions.versions, "at_least", lambda *_: True)


@pytest.mark.parametrize(
    ("cpu", "net", "typed", "before", "convolutions", "why"),
    [
        (ZEN_5, "resnet50", "", "", PRODUCTS, "resnet50 is faster with AVX-512"),
        (ZEN_5, "resnet20", "", "", STANDARD, "on CPU family 26 model 2"),
        (ZEN_5, "", "", "", STANDARD, "this net is not known"),  # a net of the user's, or fp16
        (XEON, "resnet50", "", "", STANDARD, "on CPU family 6 model 167"),
        (WITHOUT, "resnet50", "", "", STANDARD, "needs no limit"),
        # a resumed run computes as before, on any CPU
        (ZEN_5, "resnet50", "", STANDARD, STANDARD, "of the checkpoint"),
        (ZEN_4, "resnet50", "", PRODUCTS, PRODUCTS, "of the checkpoint"),
        (WITHOUT, "resnet50", "", PRODUCTS, PRODUCTS, "of the checkpoint"),
        # unless it is not compiled now, or was started with groups and a typed ALL
        (ZEN_5, "", "", PRODUCTS, STANDARD, "this net is not known"),
        (WITHOUT, "", "", PRODUCTS, STANDARD, "needs no limit"),
        (ZEN_5, "", "", STANDARD, STANDARD, "of the checkpoint"),
        # what the user has typed is stronger than table and checkpoint
        (ZEN_5, "resnet50", "avx2", PRODUCTS, STANDARD, "ONEDNN_MAX_CPU_ISA is avx2"),
        (ZEN_4, "resnet20", "ALL", "", PRODUCTS, "ONEDNN_MAX_CPU_ISA is ALL"),
        (ZEN_4, "", "ALL", "", STANDARD, "ONEDNN_MAX_CPU_ISA is ALL"),
        (WITHOUT, "resnet20", "ALL", "", STANDARD, "ONEDNN_MAX_CPU_ISA is ALL"),
    ],
)
def test_cpu_net_checkpoint_and_user_choose_the_convolutions(
    cpu, net, typed, before, convolutions, why
):
    choice = choose(cpu, net, typed, Choice(before, "of the checkpoint") if before else None)
    assert choice.convolutions == convolutions
    assert why in choice.why


def test_an_older_mindspore_needs_no_limit(monkeypatch):
    monkeypatch.setattr(instructions.versions, "at_least", lambda *_: False)
    assert choose(ZEN_5, "resnet50") == (STANDARD, "oneDNN needs no limit here")


@pytest.mark.parametrize("cpu", [ZEN_5, XEON])
def test_only_a_command_lifts_the_limit(cpu, monkeypatch):
    monkeypatch.setattr(instructions, "this_cpu", lambda: cpu)
    for name in (instructions.VARIABLE, instructions.IS_DEFAULT):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("_may_choose", False), ("_made", instructions.choice())):
        monkeypatch.setattr(instructions, name, value)
    instructions.limit()
    assert os.environ[instructions.VARIABLE] == "AVX2"
    assert instructions.typed_limit() == ""
    assert instructions.choose_for("resnet50").why == "a script may compute other convolutions"
    before = Choice(STANDARD, "of the checkpoint")
    assert instructions.choose_for("resnet50", before) == before
    # even if a command has trained the run without the limit
    before = Choice(PRODUCTS, "of the checkpoint")
    assert instructions.choose_for("resnet50", before).convolutions == STANDARD
    assert os.environ[instructions.VARIABLE] == "AVX2"
    instructions.allow_choice()
    assert instructions.choose_for("resnet8").convolutions == STANDARD
    assert os.environ[instructions.VARIABLE] == "AVX2"
    chosen = instructions.choose_for("resnet50")
    assert instructions.choice() == chosen
    assert chosen.convolutions == (PRODUCTS if cpu == ZEN_5 else STANDARD)
    assert (instructions.VARIABLE in os.environ) == (cpu != ZEN_5)


def test_a_limit_of_the_environment_stays(monkeypatch):
    monkeypatch.setattr(instructions, "this_cpu", lambda: ZEN_5)
    monkeypatch.setattr(instructions, "_made", instructions.choice())
    monkeypatch.delenv(instructions.IS_DEFAULT, raising=False)
    monkeypatch.setenv(instructions.VARIABLE, "AVX2")
    instructions.limit()
    assert instructions.typed_limit() == "AVX2"
    instructions.choose_for("resnet50", before=Choice(PRODUCTS, "of the checkpoint"))
    assert os.environ[instructions.VARIABLE] == "AVX2"
    assert instructions.choice().convolutions == STANDARD
    assert instructions.describe() == "ONEDNN_MAX_CPU_ISA is AVX2"


def test_the_doctor_names_the_instructions_of_nets(monkeypatch):
    monkeypatch.setattr(instructions, "typed_limit", lambda: "")
    lines = []
    for cpu in (ZEN_5, XEON, WITHOUT):
        monkeypatch.setattr(instructions, "this_cpu", lambda cpu=cpu: cpu)
        lines.append(instructions.describe())
    assert "all for resnet18, resnet50" in lines[0]
    assert "AVX2 for other nets" in lines[0]
    assert lines[1].startswith("AVX2 for all nets")
    assert lines[2] == "oneDNN needs no limit here"


def test_onednn_reads_the_limit_when_it_computes(python):
    """So the limit may be lifted when the net is known, after MindSpore's library has loaded."""
    if platform.machine() != "x86_64":
        pytest.skip("needs the instructions of x86")
    code = (
        "import os, resnet_fn\n"
        "from resnet_fn.runtime import process; process.start('CPU')\n"
        "import mindspore, numpy as np; from mindspore import Tensor, ops\n"
        "x = Tensor(np.ones((64, 64), np.float32)) + 1; x.asnumpy()\n"
        "os.environ['ONEDNN_MAX_CPU_ISA'] = 'AVX2'\n"
        "ops.MatMul()(x, x).asnumpy()\n"
    )
    log = python("-c", code, ONEDNN_MAX_CPU_ISA="SSE41", ONEDNN_VERBOSE="1").stdout
    (used,) = [line for line in log.splitlines() if "info,cpu,isa:" in line]
    assert "AVX2" in used
