import configparser
import re
from pathlib import Path

import pytest

import resnet_fn

ROOT = Path(__file__).resolve().parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_importing_the_package_is_quiet_and_does_not_load_mindspore(python):
    done = python("-c", "import resnet_fn, sys; print('mindspore' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_training_does_not_load_pytorch_and_leaves_it_importable(python):
    pytest.importorskip("torch", reason="compares with an installed PyTorch")
    done = python(
        "-c", "import sys, resnet_fn.run.loop; print('torch' in sys.modules); import torch; print(torch.ones(2).sum())"
    )
    assert (done.stdout, done.stderr) == ("False\ntensor(2.)\n", "")


def test_every_public_name_is_in_help_and_can_be_had_and_functions_win_over_files(python):
    done = python(
        "-c",
        "import resnet_fn\n"
        "import resnet_fn.train, resnet_fn.evaluate, resnet_fn.predict, resnet_fn.export\n"
        "for name in resnet_fn.__all__: getattr(resnet_fn, name)\n"
        "print(resnet_fn.train.__module__, resnet_fn.evaluate.__module__, resnet_fn.recipes.__name__)\n"
        "print(resnet_fn.predict.__module__, resnet_fn.export.__module__, len(dir(resnet_fn)))\n"
        "help(resnet_fn)",
    )
    assert done.stderr == ""
    first, second, *page = done.stdout.splitlines()
    assert first == "resnet_fn.run.loop resnet_fn.evaluation.evaluate resnet_fn.recipes"
    assert second == f"resnet_fn.evaluation.predict resnet_fn.evaluation.export {len(resnet_fn.__all__)}"
    assert len(page) <= 60  # two screens, with every name
    assert set(resnet_fn.__all__) <= set(re.findall(r"\w+", "\n".join(page)))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="has no attribute 'traine'; it has: Recipe, RunOptions"):
        resnet_fn.traine  # noqa: B018


def test_the_package_is_marked_as_typed():
    assert SETUP["options.package_data"]["resnet_fn"] == "py.typed"
    assert (ROOT / "resnet_fn" / "py.typed").exists()


def test_a_weight_file_cannot_run_code_in_any_pytorch_that_is_allowed():
    """As it can by CVE-2025-32434 before 2.6 and by CVE-2026-24747 before 2.10, though `weights_only` is given."""
    torch, floor = SETUP["options.extras_require"]["torch"].strip().split(" >=")
    assert (torch, tuple(map(int, floor.split("."))) >= (2, 10)) == ("torch", True)


def test_train_takes_a_recipes_name():
    with pytest.raises(ValueError, match=r"^recipe: 'digit' is unknown; did you mean digits"):
        resnet_fn.train("digit")
    with pytest.raises(ValueError, match=r"^nowhere: does not exist"):
        resnet_fn.train("digits", resnet_fn.RunOptions(resume="nowhere"))


def test_a_users_environment_is_never_overridden(python):
    done = python(
        "-c",
        "import os; os.environ.update(ONEDNN_MAX_CPU_ISA='SSE41', GLOG_v='2')\n"
        "import resnet_fn; print(os.environ['ONEDNN_MAX_CPU_ISA'], os.environ['GLOG_v'])",
    )
    assert done.stdout == "SSE41 2\n"


def test_all_files_that_are_no_modules_are_installed():
    data = {
        path
        for package, patterns in SETUP["options.package_data"].items()
        for pattern in patterns.split(",")
        for path in ROOT.joinpath(*package.split(".")).glob(pattern.strip())
    }
    files = {path for path in (ROOT / "resnet_fn").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files - data == {path for path in files if path.suffix == ".py"}
