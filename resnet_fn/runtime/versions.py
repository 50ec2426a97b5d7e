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


def at_least(major: int, minor: int, package: str = "mindspore") -> bool:
    """Return True if the installed version is at least major.minor, or if the version is
    unknown.
    """
    numbers = installed_version(package).split(".")
    return not numbers[0].isdigit() or (int(numbers[0]), int(numbers[1])) >= (major, minor)


def warnings() -> list[str]:
    """Return warnings about unsupported versions of MindSpore and Pillow."""
    lines = []
    version = installed_version("mindspore")
    if version not in RUN_ON:
        lines.append(
            f"warning: MindSpore {version} was never tried with this package ({', '.join(RUN_ON)} "
            "were); run python -m resnet_fn.doctor"
        )
    if not at_least(9, 1, "pillow"):
        lines.append(
            f"warning: Pillow {installed_version('pillow')} is too old to read images; run pip "
            "install 'pillow>=9.1'"
        )
    return lines
