"""A small trace accepts a right port, names faults, and does not decide what it does not hold."""

import importlib.util
import json
import lzma
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config import cli
from resnet_fn.parity.__main__ import main
from resnet_fn.parity.pytest_fixture import parity  # noqa: F401 (a fixture)
from resnet_fn.parity.trace.folder import load_recording
from resnet_fn.parity.trace.small_file import load_small

pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
pytestmark = pytest.mark.usefixtures("device")

REFERENCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.relu(x + self.norm2(self.block(x)))
        return self.head(x.mean((2, 3)))
"""
PORT = """
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Dense(8, 10)

    def construct(self, x):
        x = ops.relu(self.norm(self.conv(x)))
        x = ops.relu(x + self.norm2(self.block(x)))
        return self.head(x.mean((2, 3)))
"""
TASK = ["--image-size", "8", "--steps", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, torch):
    """torch_net.py, net.py and the small trace `trace.npz`."""
    made = tmp_path_factory.mktemp("small")
    (made / "torch_net.py").write_text(REFERENCE)
    (made / "net.py").write_text(PORT)
    given = ["record", "--reference", f"{made / 'torch_net.py'}:Net", "--small", *TASK]
    assert main([*given, "--out", str(made / "trace.npz")]) == 0
    return made


@pytest.fixture
def replay(folder, tmp_path, capsys):
    """replay(old=new, …): the exit code and the output, of the port with this text replaced."""

    def run(changes=(), *flags):
        text = PORT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "net.py").write_text(text)
        net = f"{tmp_path / 'net.py'}:Net"
        given = ["replay", str(folder / "trace.npz"), "--net", net, "--mode", "pynative", *flags]
        code = main(given)
        return code, capsys.readouterr().out

    return run


def test_a_right_port_agrees_in_so_many_numbers(replay, tmp_path):
    code, out = replay((), "--json", str(tmp_path / "out.json"), "--report", str(tmp_path))
    assert code == 0
    verdict = re.search(
        r"^verdict: agree in (\d+) sampled numbers and norms of (\d+) arrays", out, re.M
    )
    numbers, arrays = map(int, verdict.groups())
    assert numbers > 3 * arrays > 90
    assert "compute the same" not in out
    [line] = re.findall("^not decided by a small trace: (.*)", out, re.M)
    assert line.startswith("what moves none of these numbers; initial values; changed inputs;")
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["small_trace"]["arrays"] == arrays
    assert "They agree in sampled numbers" in (tmp_path / "parity.html").read_text()


@pytest.mark.parametrize(
    ("change", "stage", "line"),
    [
        (
            ("ops.relu(x + self.norm2", "ops.relu(self.norm2"),
            "eval forward, logits: ",
            "first layer that differs: head in evaluation mode",
        ),
        (
            (
                "nn.BatchNorm2d(8)\n        self.block",
                "nn.BatchNorm2d(8, momentum=0.5)\n        self.block",
            ),
            "BatchNorm statistics after update 1, change of norm.moving_mean",
            "norm: momentum=0.5 in the port",
        ),
        (
            ("(x + self", "(ops.stop_gradient(x) + self"),
            "gradients, norm.beta: about",
            "the outputs of layers agree",
        ),
    ],
    ids=["shortcut", "momentum", "gradient"],
)
def test_faults_are_named_by_stage_layer_and_cause(replay, change, stage, line):
    code, out = replay([change])
    assert code == 1
    assert f"first stage that differs: {stage}" in out
    assert line in out


def test_a_cause_is_searched_in_the_recorded_module(replay, folder):
    module = f"{folder / 'torch_net.py'}:Net"
    _, out = replay([("ops.relu(x +", "ops.elu(x +")], "--reference", module)
    assert re.search(r"^  torch_net.py:\d+: elu for relu in the port$", out, re.M)


def test_other_names_are_paired_without_initial_values(replay):
    """Initial weights that are wrong, and an update that is right."""
    names = [(f"self.{one}", f"self.other_{one}") for one in ("conv", "block", "head", "norm")]
    code, out = replay([("nn.Dense(8, 10)", 'nn.Dense(8, 10, weight_init="ones")'), *names])
    assert code == 0
    assert "paired by execution order and shapes" in out
    assert "verdict: agree in" in out
    assert "initial values" in re.search("^not decided by a small trace: (.*)", out, re.M)[1]


def test_weights_and_images_are_drawn_again(folder):
    trace = load_small(folder / "trace.npz")
    assert trace.run.start["conv.weight"].shape == (8, 3, 3, 3)
    [(images, labels), other] = trace.plan.batches
    assert images.shape == (4, 3, 8, 8)
    assert not np.array_equal(images, other[0])
    assert labels.dtype == np.int32
    assert (folder / "trace.npz").stat().st_size < 8000


def test_a_port_is_its_next_version_s_reference(folder, tmp_path, capsys):
    net = f"{folder / 'net.py'}:Net"
    file, mode = str(tmp_path / "port.npz"), ["--mode", "pynative"]
    assert main(["record", "--net", net, "--small", "--out", file, *TASK, *mode]) == 0
    assert main(["replay", file, "--net", net, *mode]) == 0
    assert "verdict: agree in" in capsys.readouterr().out


def test_compare_takes_a_small_trace_as_reference(folder, tmp_path, capsys):
    net, small = f"{folder / 'net.py'}:Net", str(folder / "trace.npz")
    whole = str(tmp_path / "whole")
    given = ["--mode", "pynative", "--probes", "none", "--out", whole]
    assert main(["record", "--net", net, "--like", small, *given]) == 0
    assert load_recording(Path(whole)).plan.seed == 0
    assert main(["compare", whole, small]) == 0
    assert "verdict: agree in" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is a small trace, which can only be the second one"):
        main(["compare", small, whole])


def test_record_like_needs_the_reference_s_own_functions(folder, tmp_path):
    def custom(manifest):
        plan = manifest["trace"]["SmallTrace"]["plan"]["Plan"]
        plan["loss"]["LossPlan"]["custom"] = True

    like = str(edited(folder / "trace.npz", tmp_path / "custom.npz", custom))
    given = ["--net", f"{folder / 'net.py'}:Net", "--mode", "pynative"]
    for command, flag in (
        (["replay", like], "--our-loss"),
        (["record", "--like", like, "--out", str(tmp_path / "port")], "--loss"),
    ):
        with pytest.raises(ValueError, match=f"^loss: the reference has its own.* with {flag} "):
            main([*command, *given])


def edited(file, target, edit):
    """The small trace with another manifest."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(lzma.decompress(members["manifest.json.xz"]))
    edit(manifest)
    members["manifest.json.xz"] = lzma.compress(json.dumps(manifest).encode())
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def other_hash(manifest):
    spec = next(one for one in manifest["arrays"] if one[0] == "drawn")
    spec[-1] = "00000000"


def test_an_interrupted_recording_keeps_the_file(folder, tmp_path, monkeypatch):
    file = tmp_path / "port.npz"
    file.write_bytes(before := (folder / "trace.npz").read_bytes())

    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "writestr", interrupt)
    given = ["record", "--net", f"{folder / 'net.py'}:Net", "--small", "--out", str(file), *TASK]
    with pytest.raises(KeyboardInterrupt):
        main([*given, "--mode", "pynative"])
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["port.npz"]


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (
            lambda file, to: to.write_bytes(file.read_bytes()[:-500]),
            "is damaged, or is no small trace",
        ),
        (lambda file, to: to.write_text("no trace"), "is damaged, or is no small trace"),
        (
            lambda file, to: edited(file, to, lambda one: one.update(version=0)),
            "has version 0, but this",
        ),
        (
            lambda file, to: edited(file, to, lambda one: one.update(format="")),
            "it is no small trace",
        ),
        (lambda file, to: edited(file, to, other_hash), "has another hash than was recorded"),
        (
            lambda file, to: edited(file, to, lambda one: one["trace"]["SmallTrace"].pop("plan")),
            "cannot read",
        ),
    ],
    ids=["cut", "text", "version", "format", "hash", "field"],
)
def test_a_damaged_file_is_one_line(folder, tmp_path, damage, line):
    file = tmp_path / "damaged.npz"
    damage(folder / "trace.npz", file)
    with pytest.raises(ValueError, match=line) as error:
        load_small(file)
    assert str(error.value).startswith(f"{file}: ")
    assert "record it again" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--like", "trace"], "--small: draws its own weights"),
        (["--layers", "none"], "--small: holds layers; leave out --layers none"),
        (["--out", "no/such/folder/trace.npz"], "cannot be written"),
    ],
)
def test_flags_that_do_not_fit_are_rejected(folder, tmp_path, flags, line):
    given = ["record", "--net", f"{folder / 'net.py'}:Net", "--small"]
    with pytest.raises(cli.UsageError, match=line):
        main([*given, "--out", str(tmp_path / "a.npz"), *flags])


def test_the_parity_fixture_accepts_a_right_port(parity, folder):  # noqa: F811
    assert parity(str(folder / "trace.npz"), net=f"{folder / 'net.py'}:Net", mode="pynative").agrees


def test_the_parity_fixture_names_stage_layer_and_cause(parity, folder, tmp_path):  # noqa: F811
    (tmp_path / "net.py").write_text(PORT.replace("BatchNorm2d(8)", "BatchNorm2d(8, eps=0.01)"))
    with pytest.raises(pytest.fail.Exception) as failure:
        parity(str(folder / "trace.npz"), net=f"{tmp_path / 'net.py'}:Net", mode="pynative")
    lines = str(failure.value).splitlines()
    assert len(lines) <= 12
    assert lines[1].startswith("first stage that differs: eval forward, logits: ")
    assert "first layer that differs: norm in evaluation mode" in str(failure.value)
    assert "  norm and 1 more: eps 0.01 in the port, 1e-05 in the reference" in lines


def test_the_fixture_searches_no_reference_without_pytorch(
    parity,  # noqa: F811
    folder,
    tmp_path,
    monkeypatch,
):
    (tmp_path / "net.py").write_text(PORT.replace("ops.relu(x +", "ops.elu(x +"))
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)  # as where it is not installed
    given = {"reference": f"{folder / 'torch_net.py'}:Net", "mode": "pynative"}
    with pytest.raises(pytest.fail.Exception, match="first stage that differs") as failure:
        parity(str(folder / "trace.npz"), net=f"{tmp_path / 'net.py'}:Net", **given)
    assert "elu for relu" not in str(failure.value)


def test_the_fixture_shows_errors_in_a_line(parity):  # noqa: F811
    with pytest.raises(pytest.fail.Exception, match=r"^parity: no.npz: there is no manifest.json"):
        parity("no.npz", model="resnet8")
    with pytest.raises(pytest.fail.Exception, match=r"^parity: net: give either net or model, no"):
        parity("no.npz", model="resnet8", net="net.py:Net")


def test_the_fixture_takes_two_modes(parity, folder):  # noqa: F811
    given = {"net": f"{folder / 'net.py'}:Net", "mode": "pynativ"}
    with pytest.raises(pytest.fail.Exception, match="'pynativ' is unknown; give graph or pynativ"):
        parity(str(folder / "trace.npz"), **given)


def test_collecting_tests_imports_no_framework():
    code = "import sys, resnet_fn.parity.pytest_fixture; print({'mindspore', 'torch'} & {*sys.modules})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


OF_LARGE = """
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return 6e3 * x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(40, 40), requires_grad=False)
        self.first, self.scale, self.head = nn.Linear(192, 40), Scale(), nn.Linear(40, 10)

    def forward(self, x):
        x = self.first(x.flatten(1))
        return self.head(x + 1e-7 * self.scale(x) @ self.table)
"""
PORT_OF_LARGE = """
from mindspore import Parameter, nn, ops


class Scale(nn.Cell):
    def construct(self, x):
        return 6e3 * x


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = Parameter(ops.ones((40, 40)), requires_grad=False)
        self.first, self.scale, self.head = nn.Dense(192, 40), Scale(), nn.Dense(40, 10)

    def construct(self, x):
        x = self.first(x.reshape(x.shape[0], -1))
        return self.head(x + 1e-7 * ops.matmul(self.scale(x), self.table))
"""


def test_arrays_that_a_file_lacks_are_named(tmp_path, capsys):
    (tmp_path / "theirs.py").write_text(OF_LARGE)
    (tmp_path / "ours.py").write_text(PORT_OF_LARGE)
    file = str(tmp_path / "large.npz")
    main(["record", "--reference", f"{tmp_path}/theirs.py:Net", "--small", "--out", file, *TASK])
    out = capsys.readouterr().out
    assert "more than 4 KB that are not trained: table\n" in out
    main(["replay", file, "--net", f"{tmp_path}/ours.py:Net", "--mode", "pynative", "--quick"])
    [line] = re.findall("^not decided by a small trace: (.*)", capsys.readouterr().out, re.M)
    assert re.search("numbers of 5000 and more in .*scale", line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "most"),
    [
        (["--model", "resnet20"], 20_000),
        pytest.param(
            shlex.split("--model resnet50 --in-channels 3 --num-classes 1000 --image-size 64"),
            120_000,
            marks=pytest.mark.release,
        ),
    ],
    ids=["resnet20", "resnet50"],
)
def test_a_small_trace_takes_few_kilobytes(tmp_path, flags, most):
    file = tmp_path / "trace.npz"
    assert main(["record", *flags, "--small", "--out", str(file)]) == 0
    assert file.stat().st_size <= most
    assert load_small(file).run.start["conv1.weight"].std() > 0
