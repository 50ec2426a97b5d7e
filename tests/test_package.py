"""What the package shows: public names, help, files of the distribution."""

import configparser
import re
from pathlib import Path

import numpy as np
import pytest

import resnet_fn
from resnet_fn.config import packages

ROOT = Path(__file__).resolve().parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_package_and_checkpoints_are_imported_quietly_without_mindspore(python):
    """A damaged run can be looked at, and checkpoints verified, on a machine without it."""
    code = (
        "import sys, resnet_fn.checkpoint.folder, resnet_fn.checkpoint.run_folder; "
        "print('mindspore' in sys.modules)"
    )
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(("version", "fault"), [((3, 10, 18), "too old"), ((3, 13, 0), "too new")])
def test_another_python_is_named_in_a_line(version, fault, python):
    code = f"import sys; sys.version_info = {version}; {{}}; import resnet_fn"
    line = f"Python 3.{version[1]} is {fault}; use 3.11 or 3.12"
    assert (
        python("-c", code.format("sys.argv = ['-m']"), code=1).stderr
        == f"resnet_fn: error: {line}\n"
    )
    # with who imported it
    assert python("-c", code.format("pass"), code=1).stderr.endswith(f"\nImportError: {line}\n")


def test_inside_the_package_an_error_names_another_folder(python):
    """There Python would take the room inspect for its own module."""
    done = python("-m", "resnet_fn.train", cwd=ROOT / "resnet_fn", code=1, PYTHONPATH=str(ROOT))
    assert done.stderr.startswith("resnet_fn: error: ")
    assert done.stderr.endswith(f" cd {ROOT}\n")
    assert done.stderr.count("\n") == 1


def test_a_clone_without_installation_names_missing_packages(python, tmp_path):
    """Without the packages of this installation (-S): first none is there, then NumPy."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for place in ("numpy", "numpy.libs"):
        (packages / place).symlink_to(Path(np.__file__).parents[1] / place)
    for path, missing in ((str(ROOT), "numpy"), (f"{ROOT}:{packages}", "(mindspore|tqdm)")):
        done = python("-S", "-m", "resnet_fn.train", code=1, PYTHONPATH=path)
        line = (
            rf"\w+: error: {missing} is not installed; run pip install \. in the folder of the "
            r"clone\n"
        )
        assert re.fullmatch(line, done.stderr), done.stderr


def test_training_neither_loads_nor_blocks_pytorch(python):
    pytest.importorskip("torch", reason="compares with an installed PyTorch")
    done = python(
        "-c",
        "import sys, resnet_fn.run.loop\nfrom resnet_fn.telemetry.board import EventFile, summary\n"
        "file = EventFile('run'); file.add(summary.scalar('name', 1.0), 1); file.close()\n"
        "print('torch' in sys.modules); import torch; print(torch.ones(2).sum())",
    )
    assert (done.stdout, done.stderr) == ("False\ntensor(2.)\n", "")


@pytest.mark.parametrize("first", ["functions", "files"])
def test_public_names_are_in_help_and_importable(first, python):
    names = "train, evaluate, predict, export"
    done = python(
        "-c",
        f"import resnet_fn\nfrom resnet_fn import {names}\n"
        * (first == "functions")
        + "import resnet_fn.train, resnet_fn.evaluate, resnet_fn.predict, resnet_fn.export\n"
        "for name in resnet_fn.__all__: getattr(resnet_fn, name)\n"
        "print(resnet_fn.train.__module__, resnet_fn.evaluate.__module__, "
        "resnet_fn.recipes.__name__)\n"
        "print(resnet_fn.predict.__module__, resnet_fn.export.__module__, len(dir(resnet_fn)))\n"
        "help(resnet_fn)",
    )
    assert done.stderr == ""
    one, two, *page = done.stdout.splitlines()
    assert one == "resnet_fn.run.loop resnet_fn.evaluation.evaluate resnet_fn.recipes"
    assert (
        two == f"resnet_fn.evaluation.predict resnet_fn.evaluation.export {len(resnet_fn.__all__)}"
    )
    assert len(page) <= 60  # two screens, with every name
    assert set(resnet_fn.__all__) <= set(re.findall(r"\w+", "\n".join(page)))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        AttributeError, match="has no attribute 'traine'; it has: Recipe, RunOptions"
    ):
        resnet_fn.traine  # noqa: B018


def test_the_version_is_the_newest_of_the_changelog():
    """Beside it stand the numbers of the formats that it writes."""
    from resnet_fn.checkpoint import manifest
    from resnet_fn.config import recipe_file
    from resnet_fn.data.sources import contents, records
    from resnet_fn.parity.inputs import stored
    from resnet_fn.parity.show import json_file
    from resnet_fn.parity.trace import folder as trace_folder
    from resnet_fn.parity.trace import small_file
    from resnet_fn.parity.ways import show as ways

    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (
        re.search(r"^## (\S+)", page, re.M)[1]
        == SETUP["metadata"]["version"]
        == resnet_fn.__version__
    )
    assert {
        name: int(number) for name, number in re.findall(r"^\| (.+?) \| (\d+) \|", page, re.M)
    } == {
        "checkpoint": manifest.FORMAT,
        "trace of the ladder": trace_folder.VERSION,
        "packed data set": records.FORMAT,
        "recipe file": recipe_file.FORMAT,
        "names of a run's pictures": contents.FORMAT,
        "JSON of the ladder, `--json`": json_file.VERSION,
        "small trace": small_file.VERSION,
        "JSON of `parity inputs`": stored.VERSION,
        "JSON of `parity self`": ways.VERSION,
    }


def test_the_named_packages_are_those_pip_installs():
    def named(requirements):
        return [
            re.match(r"\w+", line)[0]
            for line in requirements.strip().splitlines()
            if line[0] not in "#%"
        ]

    assert named(SETUP["options"]["install_requires"]) == list(packages.NEEDED)
    extras = SETUP["options.extras_require"]
    with_code = ("torch", "plots", "export")
    assert {name: extra for extra in with_code for name in named(extras[extra])} == packages.EXTRAS


def test_allowed_pytorch_versions_run_no_code_of_files():
    """As it can by CVE-2025-32434 before 2.6 and by CVE-2026-24747 before 2.10, though
    `weights_only` is given.
    """
    torch, floor = SETUP["options.extras_require"]["torch"].strip().split(" >=")
    assert (torch, tuple(map(int, floor.split("."))) >= (2, 10)) == ("torch", True)


def test_train_takes_a_recipes_name():
    with pytest.raises(ValueError, match=r"^recipe: 'digit' is unknown; did you mean digits"):
        resnet_fn.train("digit")
    with pytest.raises(ValueError, match=r"^nowhere does not exist"):
        resnet_fn.train("digits", resnet_fn.RunOptions(resume="nowhere"))


def test_all_files_that_are_no_modules_are_installed():
    data = {
        path
        for package, patterns in SETUP["options.package_data"].items()
        for pattern in patterns.split(",")
        for path in ROOT.joinpath(*package.split(".")).glob(pattern.strip())
    }
    assert ROOT / "resnet_fn" / "py.typed" in data
    files = {
        path
        for path in (ROOT / "resnet_fn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - data == {path for path in files if path.suffix == ".py"}
