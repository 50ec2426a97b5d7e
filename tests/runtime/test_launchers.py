"""Processes that mpirun, torchrun and srun start: only their environment variables are set here."""

import os
from pathlib import Path
from unittest import mock

import pytest

from resnet_fn.runtime.launchers import check_launcher

TORCHRUN = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
SRUN = {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7"}
LAUNCHED = {
    "mpirun of Open MPI": {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
    "mpirun of MPICH": {"PMI_SIZE": "2", "PMI_RANK": "1"},
    "mpirun of MVAPICH": {"MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_RANK": "1"},
    "torchrun": TORCHRUN,
    "srun": SRUN,
}
ALONE = {
    "srun with one task": SRUN | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"},
    "a batch script of Slurm for two tasks": {
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "0",
        "SLURM_JOB_ID": "7",
    },
    "torchrun with one process": TORCHRUN | {"WORLD_SIZE": "1"},
    "a stray variable": {"WORLD_SIZE": "2"},
    "a variable that is no number": {"OMPI_COMM_WORLD_SIZE": "two"},
    "a shell of srun --pty": SRUN | {"SLURM_PTY_PORT": "40001", "PMI_SIZE": "2"},
    "msrun, which srun started on each machine": SRUN | {"MS_ROLE": "MS_WORKER"},
}


@pytest.mark.parametrize("variables", LAUNCHED.values(), ids=LAUNCHED.keys())
def test_processes_of_another_launcher_are_rejected(variables, raises_line):
    fix = "resnet_fn.launch --workers 2 --"
    parts = ("is 2", "do not work together", fix, "unset", "2 separate runs")
    with mock.patch.dict(os.environ, variables), raises_line(*parts):
        check_launcher()


@pytest.mark.parametrize("variables", ALONE.values(), ids=ALONE.keys())
def test_a_lone_process_and_msruns_pass(variables):
    with mock.patch.dict(os.environ, variables):
        check_launcher()


def test_ranks_without_msrun_are_rejected(monkeypatch, raises_line):
    """As ModelArts starts them by a table of ranks."""
    monkeypatch.setenv("RANK_SIZE", "8")
    with raises_line("RANK_SIZE is 8", "MA_RUN_METHOD=msrun"):
        check_launcher()


def test_a_run_that_would_be_alone_writes_nothing(python, says):
    done = python("-m", "resnet_fn.train", "--out-dir", "run", code=1, **SRUN)
    says(done.stderr, "train: error: ", "resnet_fn.launch --workers 2 -- --out-dir run once")
    assert not Path("run").exists()


def test_the_fix_is_the_typed_command(python, says):
    done = python("-m", "resnet_fn.evaluate", "my run", code=1, **SRUN)
    says(done.stderr, "launch --workers 2 -- python -m resnet_fn.evaluate 'my run' once")


@pytest.mark.parametrize(
    "variables",
    [SRUN | {"SLURM_STEP_NUM_NODES": "2"}, TORCHRUN | {"GROUP_WORLD_SIZE": "2"}],
    ids=["srun", "torchrun"],
)
def test_errors_on_several_machines_name_the_page(variables, raises_line):
    parts = ("is 2", "resnet_fn.launch once on each of the 2 machines", "distributed.md")
    with mock.patch.dict(os.environ, variables), raises_line(*parts):
        check_launcher()


def test_predict_is_not_rejected_under_srun(python, says):
    Path("a.png").touch()
    done = python("-m", "resnet_fn.predict", "none", "a.png", code=1, **SRUN)
    says(done.stderr, "predict: error: none")
    assert "launch" not in done.stderr
