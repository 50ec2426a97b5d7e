"""Record the versions, the device and the environment variables that can change results."""

import os
import platform
from collections.abc import Mapping
from typing import Any

import resnet_fn
from resnet_fn.config.packages import installed_version
from resnet_fn.runtime.cpus import processor

# Prefixes of environment variables that choose kernels or change the kernels' results.
_VARIABLES = (
    "ONEDNN_",
    "DNNL_",
    "ATEN_",
    "OMP_NUM",
    "MKL_",
    "MS_DEV_",
    "HCCL_DETERMINISTIC",
    "CUBLAS_WORKSPACE",
)

_LIBRARIES = ("mindspore", "torch", "numpy")


def environment(**settings: Any) -> dict[str, str]:
    """Return a dict of strings: versions and environment variables of this process, and `settings`
    like the device.
    """
    values = {
        "resnet_fn": resnet_fn.__version__,
        "Python": platform.python_version(),
        "CPU": processor(),
    }
    values |= {name: version for name in _LIBRARIES if (version := installed_version(name))}
    values |= {name: str(value) for name, value in settings.items()}
    return values | {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
    }


def environment_notes(port: Mapping[str, str], reference: Mapping[str, str]) -> list[str]:
    """Return one line for each value that differs.

    A version is compared only if both environments have the package.
    """
    common = [
        name
        for name in {**port, **reference}
        if name.startswith(_VARIABLES) or (name in port and name in reference)
    ]
    pairs = {name: (port.get(name, "not set"), reference.get(name, "not set")) for name in common}
    return [
        f"{name}: {port_value} in the port, {reference_value} in the reference"
        for name, (port_value, reference_value) in pairs.items()
        if port_value != reference_value
    ]
