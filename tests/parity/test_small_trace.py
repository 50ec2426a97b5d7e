"""A small trace accepts a right port, names faults, and does not decide what it does not hold."""

import importlib.util
import json
import lzma
import re
import shlex
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
PYNATIVE = ["--mode", "pynative"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, torch):
    """torch_net.py, net.py and the small trace `trace.npz`."""
    made = tmp_path_factory.mktemp("small")
    (made / "torch_net.py").write_text(REFERENCE)
    (made / "net.py").write_text(PORT)
    reference, out = f"{made}/torch_net.py:Net", f"{made}/trace.npz"
    assert main(["record", "--reference", reference, "--small", *TASK, "--out", out]) == 0
    return made


@pytest.fixture
def net(folder):
    return f"{folder}/net.py:Net"


@pytest.fixture
def trace(folder):
    return str(folder / "trace.npz")


def write_port(*changes):
    """net.py with these texts replaced."""
    text = PORT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("net.py").write_text(text)


@pytest.fixture
def replay(trace, capsys):
    """replay(changes): the exit code and the output, of the port with these texts replaced."""

    def run(changes=(), *flags):
        write_port(*changes)
        code = main(["replay", trace, "--net", "net.py:Net", *PYNATIVE, *flags])
        return code, capsys.readouterr().out

    return run


def test_a_right_port_agrees_in_so_many_numbers(replay):
    code, out = replay((), "--json", "out.json", "--report", ".")
    assert code == 0
    verdict = re.search(
        r"^verdict: agree in (\d+) sampled numbers and norms of (\d+) arrays", out, re.M
    )
    numbers, arrays = map(int, verdict.groups())
    assert numbers > 3 * arrays > 90
    assert "compute the same" not in out
    [line] = re.findall("^not decided by a small trace: (.*)", out, re.M)
    assert line.startswith("what moves none of these numbers; initial values; changed inputs;")
    content = json.loads(Path("out.json").read_text())
    assert content["small_trace"]["arrays"] == arrays
    assert "They agree in sampled numbers" in Path("parity.html").read_text()


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
    reference = f"{folder}/torch_net.py:Net"
    _, out = replay([("ops.relu(x +", "ops.elu(x +")], "--reference", reference)
    assert re.search(r"^  torch_net.py:\d+: elu for relu in the port$", out, re.M)


def test_other_names_are_paired_without_initial_values(replay):
    """Initial weights that are wrong, and an update that is right."""
    names = [(f"self.{name}", f"self.other_{name}") for name in ("conv", "block", "head", "norm")]
    code, out = replay([("nn.Dense(8, 10)", 'nn.Dense(8, 10, weight_init="ones")'), *names])
    assert code == 0
    assert "paired by execution order and shapes" in out
    assert "verdict: agree in" in out
    assert "initial values" in re.search("^not decided by a small trace: (.*)", out, re.M)[1]


def test_weights_and_images_are_drawn_again(trace):
    small = load_small(Path(trace))
    assert small.run.start["conv.weight"].shape == (8, 3, 3, 3)
    [(images, labels), other] = small.plan.batches
    assert images.shape == (4, 3, 8, 8)
    assert not np.array_equal(images, other[0])
    assert labels.dtype == np.int32
    assert Path(trace).stat().st_size < 8000


def test_a_port_is_its_next_version_s_reference(net, capsys):
    record = ["record", "--net", net, "--small", "--out", "port.npz", *TASK]
    assert main([*record, *PYNATIVE]) == 0
    assert main(["replay", "port.npz", "--net", net, *PYNATIVE]) == 0
    assert "verdict: agree in" in capsys.readouterr().out


def test_compare_takes_a_small_trace_as_reference(net, trace, capsys):
    record = ["record", "--net", net, "--like", trace, "--probes", "none", "--out", "whole"]
    assert main([*record, *PYNATIVE]) == 0
    assert load_recording(Path("whole")).plan.seed == 0
    assert main(["compare", "whole", trace]) == 0
    assert "verdict: agree in" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is a small trace, which can only be the second one"):
        main(["compare", trace, "whole"])


@pytest.mark.parametrize(
    ("command", "flag"),
    [("replay custom.npz", "--our-loss"), ("record --like custom.npz --out port", "--loss")],
)
def test_record_like_needs_the_reference_s_own_functions(net, trace, command, flag):
    def custom(manifest):
        plan = manifest["trace"]["SmallTrace"]["plan"]["Plan"]
        plan["loss"]["LossPlan"]["custom"] = True

    edited(trace, "custom.npz", custom)
    with pytest.raises(ValueError, match=f"^loss: the reference has its own.* with {flag} "):
        main([*command.split(), "--net", net, *PYNATIVE])


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


def other_hash(manifest):
    spec = next(spec for spec in manifest["arrays"] if spec[0] == "drawn")
    spec[-1] = "00000000"


def test_an_interrupted_recording_keeps_the_file(net, trace, tmp_path, monkeypatch):
    file = tmp_path / "port.npz"
    file.write_bytes(before := Path(trace).read_bytes())

    def interrupt(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "writestr", interrupt)
    with pytest.raises(KeyboardInterrupt):
        main(["record", "--net", net, "--small", "--out", str(file), *TASK, *PYNATIVE])
    assert file.read_bytes() == before
    assert [*tmp_path.iterdir()] == [file]


def test_a_cut_file_is_one_line(trace, raises_line):
    file = Path("damaged.npz")
    file.write_bytes(Path(trace).read_bytes()[:-500])
    with raises_line(f"{file}: ", "is damaged, or is no small trace", "record it again"):
        load_small(file)


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda manifest: manifest.update(version=0), "has version 0, but this"),
        (lambda manifest: manifest.update(format=""), "it is no small trace"),
        (other_hash, "has another hash than was recorded"),
        (lambda manifest: manifest["trace"]["SmallTrace"].pop("plan"), "cannot read"),
    ],
    ids=["version", "format", "hash", "field"],
)
def test_a_damaged_file_is_one_line(trace, raises_line, edit, line):
    file = Path("damaged.npz")
    edited(trace, file, edit)
    with raises_line(f"{file}: ", line, "record it again"):
        load_small(file)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--like", "trace"], "--small: draws its own weights"),
        (["--layers", "none"], "--small: holds layers; leave out --layers none"),
        (["--out", "no/such/folder/trace.npz"], "cannot be written"),
    ],
)
def test_flags_that_do_not_fit_are_rejected(net, flags, line):
    with pytest.raises(cli.UsageError, match=line):
        main(["record", "--net", net, "--small", "--out", "a.npz", *flags])


def test_the_parity_fixture_accepts_a_right_port(parity, trace, net):  # noqa: F811
    assert parity(trace, net=net, mode="pynative").agrees


def test_the_parity_fixture_names_stage_layer_and_cause(parity, trace):  # noqa: F811
    write_port(("BatchNorm2d(8)", "BatchNorm2d(8, eps=0.01)"))
    with pytest.raises(pytest.fail.Exception) as failure:
        parity(trace, net="net.py:Net", mode="pynative")
    lines = str(failure.value).splitlines()
    assert len(lines) <= 12
    assert lines[1].startswith("first stage that differs: eval forward, logits: ")
    assert "first layer that differs: norm in evaluation mode" in str(failure.value)
    assert "  norm and 1 more: eps 0.01 in the port, 1e-05 in the reference" in lines


def test_the_fixture_searches_no_reference_without_pytorch(
    parity,  # noqa: F811
    folder,
    trace,
    monkeypatch,
):
    write_port(("ops.relu(x +", "ops.elu(x +"))
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)  # as where it is not installed
    reference = f"{folder}/torch_net.py:Net"
    with pytest.raises(pytest.fail.Exception, match="first stage that differs") as failure:
        parity(trace, net="net.py:Net", reference=reference, mode="pynative")
    assert "elu for relu" not in str(failure.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"trace": "no.npz", "model": "resnet8"},
            "^parity: no.npz: there is no manifest.json",
        ),
        (
            {"model": "resnet8", "net": "net.py:Net"},
            "^parity: net: give either net or model, no",
        ),
        ({"net": "net.py:Net", "mode": "pynativ"}, "'pynativ' is unknown; give graph or pynativ"),
    ],
)
def test_the_fixture_shows_errors_in_a_line(parity, trace, options, line):  # noqa: F811
    write_port()
    with pytest.raises(pytest.fail.Exception, match=line):
        parity(**{"trace": trace, **options})


def test_collecting_tests_imports_no_framework(python):
    code = "import sys, resnet_fn.parity.pytest_fixture; print({'mindspore', 'torch'} & {*sys.modules})"
    assert python("-c", code).stdout.strip() == "set()"


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


def test_arrays_that_a_file_lacks_are_named(capsys):
    Path("theirs.py").write_text(OF_LARGE)
    Path("ours.py").write_text(PORT_OF_LARGE)
    main(["record", "--reference", "theirs.py:Net", "--small", "--out", "large.npz", *TASK])
    out = capsys.readouterr().out
    assert "more than 4 KB that are not trained: table\n" in out
    main(["replay", "large.npz", "--net", "ours.py:Net", *PYNATIVE, "--quick"])
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
