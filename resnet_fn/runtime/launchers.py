"""This module rejects processes that another launcher than msrun started: each trains alone."""

import os
from typing import NamedTuple


class _Launcher(NamedTuple):
    """A launcher, the variable that counts its processes, and others that its processes have."""

    names: str
    variable: str
    with_others: tuple[str, ...] = ()


# A batch script of Slurm has SLURM_NTASKS and SLURM_PROCID, too; only srun sets the step's number.
# A shell often has a stray WORLD_SIZE, so torchrun's other variables must be there.
_LAUNCHERS = (
    _Launcher("mpirun", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpirun", "MV2_COMM_WORLD_SIZE"),
    _Launcher("mpirun or srun", "PMI_SIZE"),
    _Launcher("torchrun", "WORLD_SIZE", ("RANK", "LOCAL_RANK")),
    _Launcher("srun", "SLURM_STEP_NUM_TASKS", ("SLURM_PROCID",)),
)


def check_launcher() -> None:
    """Raise ValueError if a launcher or platform started several processes, but not as msrun does."""
    if "MS_ROLE" in os.environ:
        _check_pod()
        return
    if (count := _number("RANK_SIZE")) > 1:
        each = "start resnet_fn.launch once on each machine"
        fix = f"set MA_RUN_METHOD=msrun if this is ModelArts, else {each}"
        not_msrun = "msrun did not start this process (MS_ROLE is not set)"
        raise ValueError(f"RANK_SIZE is {count}, but {not_msrun}; {fix}")
    for launcher in _LAUNCHERS:
        count = _number(launcher.variable)
        if count > 1 and all(name in os.environ for name in launcher.with_others):
            apart = f"processes of {launcher.names} do not train together"
            command = f"python -m resnet_fn.launch --workers {count} -- FLAGS"
            fix = f"run {command} once, or unset {launcher.variable} for {count} separate runs"
            raise ValueError(f"{launcher.variable} is {count}, but {apart}; {fix}")


def _check_pod() -> None:
    # MindCluster's operator sets MS_ROLE, too, but msrun always sets MS_TOPO_TIMEOUT.
    if (count := _number("MS_LOCAL_WORKER")) > 1 and "MS_TOPO_TIMEOUT" not in os.environ:
        fix = "change the pod's command to python -m resnet_fn.launch -- FLAGS, with the same FLAGS"
        started = "the pod's command started only one worker"
        raise ValueError(f"MS_LOCAL_WORKER is {count}, but {started}; {fix}")


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
