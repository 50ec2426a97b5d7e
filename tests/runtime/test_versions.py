import os
import subprocess
import sys

import mindspore
import pytest

from resnet_fn.runtime import versions


def test_pip_and_mindspore_agree():
    assert versions.installed() == mindspore.__version__


@pytest.mark.parametrize(
    ("version", "later"), [("2.7.2", False), ("2.8.0", False), ("2.9.0", True), ("2.10.0", True), ("2.11.0rc1", True)]
)
def test_ten_is_more_than_nine(version, later, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: version)
    assert versions.at_least(2, 9) == later


@pytest.mark.parametrize("version", ["2.6.0", "2.7.1", "2.11.0"])
def test_a_version_that_was_not_run_is_met_by_one_line(version, monkeypatch):
    assert versions.warning() == "" or versions.installed() not in versions.RUN_ON
    monkeypatch.setattr(versions, "installed", lambda: version)
    assert versions.warning() == (
        f"warning: MindSpore {version} was never tried with this package (2.7.2, 2.8.0, 2.9.0, 2.10.0 were); "
        "run python -m resnet_fn.doctor"
    )


@pytest.mark.parametrize(("rank", "lines"), [(None, 1), ("0", 1), ("1", 0)])
def test_the_warning_is_no_refusal_and_comes_once(rank, lines):
    code = (
        "from resnet_fn.runtime import process, versions\n"
        "versions.installed = lambda: '2.11.0'\n"
        "process.start(threads=1); process.start(threads=1)\n"
        "print((__import__('mindspore').Tensor([1.0]) + 1).asnumpy())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RANK_ID"}
    environment |= {"RANK_ID": rank} if rank else {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, "[2.]\n"), done.stderr
    assert done.stderr.count("warning: MindSpore 2.11.0 was never tried") == len(done.stderr.splitlines()) == lines
