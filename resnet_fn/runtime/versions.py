"""This module lists the supported versions of MindSpore and looks up installed versions."""

from pathlib import Path

from resnet_fn.config.packages import installed_version
from resnet_fn.runtime.disk import sha256

RUN_ON = ("2.7.2", "2.8.0", "2.9.0", "2.10.0")  # scripts/test_versions.sh runs the tests on each


def sources() -> str:
    """Return one SHA-256 hash over the Python files of this package."""
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    # no editor's lock
    return sha256(b"".join(sha256(file.read_bytes()).encode() for file in files if file.is_file()))


def at_least(major: int, minor: int) -> bool:
    """Return True if the installed MindSpore is at least version major.minor, or if the version is
    unknown.
    """
    numbers = installed_version("mindspore").split(".")
    return not numbers[0].isdigit() or (int(numbers[0]), int(numbers[1])) >= (major, minor)


def warning() -> str:
    """Return a warning if the installed MindSpore is an unsupported version, else ""."""
    version = installed_version("mindspore")
    if version in RUN_ON:
        return ""
    return (
        f"warning: MindSpore {version} was never tried with this package ({', '.join(RUN_ON)} "
        "were); run python -m resnet_fn.doctor"
    )
