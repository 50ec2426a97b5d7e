"""The acceptance kit: everything that a machine must be able to do, by the package's own commands, in one folder.

This process starts no device: what it runs has it to itself.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config.cli import write_text
from resnet_fn.config.hints import finite_or_null, first_line
from resnet_fn.doctor.commands import CommandError, Commands
from resnet_fn.doctor.findings import Finding, line
from resnet_fn.doctor.machine import describe
from resnet_fn.doctor.page import page
from resnet_fn.doctor.trials import TRIALS, NotTriedError, Trial
from resnet_fn.runtime.workers import Workers


def accept(
    out: Path, device: str, threads: int, workers: int, keep: bool = False, trials: Sequence[Trial] = TRIALS
) -> dict[str, Any]:
    """Do all checks, and write `out`/acceptance.json and acceptance.md; what the checks made goes if all is well.

    Args:
        out: a new folder, or an empty one.
        device, threads: of every command.
        workers: of those that need several; 1: they are not tried.
        keep: leave what the checks made.
        trials: the first is the doctor, which tells what the machine is.

    Returns:
        What acceptance.json holds: "machine", "checks", "broken", "not_tried", "seconds".

    Raises:
        ValueError: the folder holds something, or nothing can be run.
    """
    began = time.perf_counter()
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"acceptance: {out} is not empty; give a new folder")
    try:
        commands = Commands(out, device, threads, workers)
    except OSError as error:
        raise ValueError(f"acceptance: {out} cannot be written ({error.strerror}); give another folder") from None
    try:
        checks = [_try(trial, commands) for trial in trials]
    except ValueError:  # the doctor did not start: a mistake, not a finding
        commands.remove()
        raise
    told = _machine(out / "doctor.json", device, threads)
    result: dict[str, Any] = {
        "machine": {name: told[name] for name in told if name not in ("findings", "broken")},
        "workers": workers,
        "checks": checks,
        "broken": [check["name"] for check in checks if check["ok"] is False],
        "not_tried": [check["name"] for check in checks if check["ok"] is None],
        "seconds": time.perf_counter() - began,
    }
    result = finite_or_null(result)
    write_text(out / "acceptance.json", json.dumps(result, indent=1) + "\n")
    write_text(out / "acceptance.md", page(result))
    if not keep:
        _tidy(commands.work, checks, bool(result["broken"]))
    return result


def _machine(file: Path, device: str, threads: int) -> dict[str, Any]:
    """What the doctor told of the machine; what can be told without the device where it crashed or hung."""
    return json.loads(file.read_text()) if file.exists() else describe(device, threads, Workers())


def _tidy(work: Path, checks: Sequence[dict[str, Any]], broken: bool) -> None:
    """Keep what broken checks made, and the run that others used."""
    for check in checks:
        if check["ok"] is not False and not (broken and check["name"] == "golden"):
            shutil.rmtree(work / check["name"])
    if not broken:
        work.rmdir()


def _try(trial: Trial, commands: Commands) -> dict[str, Any]:
    """Do one check and say what was found; one that raises has found something broken."""
    began = time.perf_counter()
    ok: bool | None = None
    numbers: Mapping[str, Any] = {}
    commands.begin(trial.name)
    try:
        ok, found, numbers = trial.run(commands)
    except NotTriedError as reason:
        found = str(reason)
    except CommandError as error:
        ok, found = False, str(error)
    except Exception as error:
        if trial.name == "doctor":
            raise
        ok, found = False, f"{type(error).__name__}: {first_line(error)}"
    print(line(Finding(trial.name, ok, found, trial.means)), flush=True)
    return {
        "name": trial.name,
        "ok": ok,
        "found": found,
        "judged": trial.judged,
        "means": trial.means,
        "seconds": time.perf_counter() - began,
        "numbers": dict(numbers),
        "commands": commands.typed,
    }
