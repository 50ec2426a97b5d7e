"""This module lists the packages that this package imports, and how to install one that is missing."""

import importlib.util
from importlib import metadata

NEEDED = ("mindspore", "numpy", "tqdm", "tensorboardX")  # setup.cfg's install_requires
EXTRAS = {"torch": "torch", "matplotlib": "plots", "onnx": "export", "onnxruntime": "export"}  # its extras


def installed(package: str = "mindspore") -> str:
    """Return the installed version of a package, or "" if pip does not list the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def is_importable(package: str) -> bool:
    """Return whether Python has this package, whoever installed it."""
    return importlib.util.find_spec(package) is not None


def how_to_install(module: str) -> str:
    """Return how to install the package of a module, or "" if this package does not use that package."""
    package = module.partition(".")[0]
    if package in NEEDED:
        return "run pip install . in the folder of the clone"
    if package in EXTRAS:
        return f"run pip install '.[{EXTRAS[package]}]' in the folder of the clone"
    return ""
