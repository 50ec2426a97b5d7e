"""The doctor's table, exit code and hints."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from resnet_fn.doctor import machine
from resnet_fn.doctor.__main__ import attempt, lines_of, main, on_all_workers
from resnet_fn.runtime import instructions
from resnet_fn.runtime.versions import at_least
from resnet_fn.runtime.workers import Workers

NAMES = [
    "transfer",
    "batchnorm",
    "nesterov",
    "convolution",
    "clip",
    "overflow",
    "skip",
    "checkpoint",
    "rename",
    "free space",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory, python):
    folder = tmp_path_factory.mktemp("doctor")
    done = python(
        "-m", "resnet_fn.doctor", "--json", "doctor.json", cwd=folder, HCCL_CONNECT_TIMEOUT="600"
    )
    assert os.listdir(folder) == ["doctor.json"]
    return done.stdout, json.loads((folder / "doctor.json").read_text())


def test_this_machine_passes_and_its_versions_are_listed(report):
    import mindspore

    output, written = report
    assert [finding["name"] for finding in written["findings"]] == NAMES
    assert written["broken"] == []
    # a sum of one worker cannot be wrong: not shown
    assert output.splitlines()[-1].startswith("10 of 10 ok, in ")
    for finding in written["findings"]:
        line = f"ok      {finding['name']:12} {finding['found']}"
        assert f"{line}\n{'':20} {finding['means']}\n" in output
    assert written["packages"]["mindspore"] == mindspore.__version__
    assert f"mindspore {mindspore.__version__}" in output
    assert written["variables"]["HCCL_CONNECT_TIMEOUT"] == "600"
    assert (written["device"], written["workers"]) == ("CPU", 1)


def test_secrets_stay_out_and_missing_packages_are_named(monkeypatch):
    for name in ("SECRET_TOKEN", "MS_GRAPH_CLIENT_SECRET", "ASCEND_TOKEN", "RANK_PASSWORD"):
        monkeypatch.setenv(name, "hunter2")
    described = machine.describe_machine("CPU", 3, Workers(0, 2))
    assert (described["threads"], described["workers"]) == (3, 2)
    assert "hunter2" not in str(described)
    described["packages"] |= {"torch": "", "onnx": "1.2"}
    text = "\n".join(machine.lines(described))
    assert "not installed (some commands need them): torch\n" in text
    assert "onnx 1.2" in text


@pytest.mark.parametrize(
    ("family", "has_avx512", "width", "hints"),
    [(6, True, "AVX-512", 3), (6, False, "no AVX-512", 0), (26, True, "AVX-512", 0)],
)
def test_an_unmeasured_processor_with_avx512_gets_its_row(
    family, has_avx512, width, hints, monkeypatch
):
    monkeypatch.setattr(instructions, "this_cpu", lambda: instructions.Cpu(family, 2, has_avx512))
    kind, kernels, *more = machine.lines_of_cpu(machine.describe_cpu())
    assert kind == f"cpu        family {family} model 2, {width}"
    assert kernels == f"kernels    {instructions.describe()}"
    assert len(more) == hints
    assert not more or more[-1].strip() == '(6, 2): frozenset({"resnet50"}),'


def test_a_check_that_raises_is_broken():
    def raises():
        raise OSError("no such kernel\nand more")

    (finding,) = on_all_workers([attempt(("name", raises, "meaning"))], Workers())
    assert lines_of(finding) == ["BROKEN  name         OSError: no such kernel", f"{'':20} meaning"]


def test_a_missing_folder_is_an_error(tmp_path, raises_line):
    with raises_line("out_dir: absent is not a folder; create it, or give another folder"):
        main(["--out-dir", "absent"])
    assert os.listdir(tmp_path) == []


CHECKS = """
import pytest
def test_golden(check):
    check.says("fine | well", rate=1.5)
def test_bad(check):
    check.run("train", "--batch-sise", "3")
def test_absent(check):
    pytest.skip("no card")
"""


def test_the_report_of_acceptance_says_what_is_broken(tmp_path, pytestconfig, python):
    shutil.copy(pytestconfig.rootpath / "tests/acceptance/conftest.py", tmp_path)
    (tmp_path / "test_checks.py").write_text(
        CHECKS.replace("(check):", '(check):\n    """What it means."""')
    )
    command = shlex.split("-m pytest --rootdir . -p no:cacheprovider . --out accepted")
    source = os.pathsep.join([str(pytestconfig.rootpath), os.environ.get("PYTHONPATH", "")])
    python(*command, code=1, PYTHONPATH=source)
    report = (tmp_path / "accepted/acceptance.md").read_text()
    assert "1 of 3 ok" in report
    assert "BROKEN: bad; not tried: absent" in report
    assert "| golden | ok | fine \\| well |" in report
    assert (
        "| bad | BROKEN | python -m resnet_fn.train --batch-sise 3 --device CPU: exit code 2: "
        "train: error: " in report
    )
    assert sorted(os.listdir(tmp_path / "accepted/work")) == ["bad", "golden"]
    written = json.loads((tmp_path / "accepted/acceptance.json").read_text())
    assert written["checks"][0]["numbers"] == {"rate": 1.5}


@pytest.mark.slow
def test_a_convolution_on_the_reference_kernel_is_named(tmp_path, python):
    """ONEDNN_MAX_CPU_ISA is what keeps convolutions fast: overridden by the user, the doctor says
    what it costs.
    """
    if " avx512f " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("oneDNN takes its reference kernel on AVX-512 machines only")
    if not at_least(2, 9):
        pytest.skip("MindSpore 2.7 and 2.8 do not")
    done = python(
        "-m", "resnet_fn.doctor", "--out-dir", tmp_path, code=1, ONEDNN_MAX_CPU_ISA="DEFAULT"
    )
    assert done.stderr == "doctor: error: broken: convolution\n"
    assert "BROKEN  convolution" in done.stdout


@pytest.mark.slow
@pytest.mark.release
def test_two_workers_pass_the_check_of_all_reduce(msrun):
    log = msrun(2, "-m", "resnet_fn.doctor")
    assert "ok      all-reduce   the sum is 3 and should be 3, infinity arrives as inf\n" in log
    assert "11 of 11 ok" in log
