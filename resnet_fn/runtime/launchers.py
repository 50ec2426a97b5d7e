"""This module rejects processes that another launcher than msrun started: each trains alone."""

import os
import shlex
from typing import NamedTuple

from resnet_fn.runtime.console import installed_program, typed_command


class _Launcher(NamedTuple):
    """A launcher, the variable that counts its processes, and others that its processes have."""

    names: str
    variable: str
    with_others: tuple[str, ...] = ()
    machines: str = ""  # the variable that counts the machines


# A batch script of Slurm has SLURM_NTASKS and SLURM_PROCID, too; only srun sets the step's number.
# A shell often has a stray WORLD_SIZE, so torchrun's other variables must be there.
_LAUNCHERS = (
    _Launcher("mpirun", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpirun", "MV2_COMM_WORLD_SIZE"),
    _Launcher("mpirun or srun", "PMI_SIZE", machines="SLURM_STEP_NUM_NODES"),
    _Launcher("torchrun", "WORLD_SIZE", ("RANK", "LOCAL_RANK"), "GROUP_WORLD_SIZE"),
    _Launcher("srun", "SLURM_STEP_NUM_TASKS", ("SLURM_PROCID",), "SLURM_STEP_NUM_NODES"),
)
_SHELL = "SLURM_PTY_PORT"  # of the shell that srun --pty gives, in which users type commands


def check_launcher() -> None:
    """Raise ValueError if another launcher than msrun started several processes.

    Commands whose processes need not join, such as `predict` on parts of a folder, do not call
    this.
    """
    if "MS_ROLE" in os.environ:
        return
    if (count := _number("RANK_SIZE")) > 1:
        raise ValueError(
            f"RANK_SIZE is {count}, but msrun did not start this process (MS_ROLE is not set); "
            "set MA_RUN_METHOD=msrun if this is ModelArts, else start resnet_fn.launch once on "
            "each machine"
        )
    for launcher in _LAUNCHERS:
        count = _number(launcher.variable)
        if "srun" in launcher.names and _SHELL in os.environ:
            continue
        if count > 1 and all(name in os.environ for name in launcher.with_others):
            apart = f"processes of {launcher.names} do not work together"
            fix = f"{_how_to_launch(count, _number(launcher.machines))}, or unset "
            fix += f"{launcher.variable} for {count} separate runs"
            raise ValueError(f"{launcher.variable} is {count}, but {apart}; {fix}")


def _how_to_launch(count: int, machines: int) -> str:
    if machines > 1:
        return f"run resnet_fn.launch once on each of the {machines} machines (docs/distributed.md)"
    typed = typed_command()
    program = "resnet_fn" if installed_program() else "python"
    command = shlex.join([program, *typed[1:]]).removeprefix("python -m resnet_fn.train ")
    return f"run python -m resnet_fn.launch --workers {count} -- {command} once"


def check_pod() -> None:
    """Raise ValueError if MindCluster's operator, which sets MS_ROLE as msrun does, started one
    worker of several.
    """
    # msrun always sets MS_TOPO_TIMEOUT.
    if (count := _number("MS_LOCAL_WORKER")) > 1 and "MS_TOPO_TIMEOUT" not in os.environ:
        raise ValueError(
            f"MS_LOCAL_WORKER is {count}, but the pod's command started only one worker; "
            "change the pod's command to python -m resnet_fn.launch -- FLAGS, with the same FLAGS"
        )


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
