"""This module lists the packages that are needed, their versions, and how to install one."""

import importlib.util
import platform
from importlib import metadata

import resnet_fn

NEEDED = ("mindspore", "numpy", "tqdm", "tensorboardX")  # setup.cfg's install_requires
# The packages of setup.cfg's extras for commands, with the extra's name.
EXTRAS = {"torch": "torch", "matplotlib": "plots", "onnx": "export", "onnxruntime": "export"}


def installed_version(package: str) -> str:
    """Return the installed version of a package, or "" if pip does not list the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions_line() -> str:
    """Return the versions of this package, MindSpore and Python in a line, without importing
    MindSpore.
    """
    mindspore = installed_version("mindspore") or "not installed"
    python = platform.python_version()
    return f"resnet_fn {resnet_fn.__version__}, MindSpore {mindspore}, Python {python}"


def is_importable(package: str) -> bool:
    """Return whether Python has this package, whoever installed it."""
    return importlib.util.find_spec(package) is not None


def how_to_install(module: str) -> str:
    """Return how to install the package of a module, or "" if it is none of the packages above."""
    package = module.partition(".")[0]
    if package in NEEDED:
        return "run pip install . in the folder of the clone"
    if package in EXTRAS:
        return f"run pip install '.[{EXTRAS[package]}]' in the folder of the clone"
    return ""
