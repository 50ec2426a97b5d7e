"""The launcher's flags, defaults of pods, and signals."""

import json
import sys
from pathlib import Path

import pytest

from resnet_fn import launch
from resnet_fn.config.cli import UsageError


def test_what_follows_the_dashes_is_the_workers_own():
    script = ["my.py", "--workers", "3", "--", "x"]
    for word in ("python", "python3", "python3.11", "/usr/bin/python3"):
        given, parsed = launch.parse(["--workers", "4", "--", word, *script])
        assert (given.workers, parsed) == (4, [sys.executable, *script])
    flags = ["--val-list", "python.txt"]
    assert launch.parse(["--", *flags])[1] == [sys.executable, "-m", "resnet_fn.train", *flags]


# What MindCluster's operator gives the second of two pods with 8 cards each.
POD = {
    **{"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "16", "MS_LOCAL_WORKER": "8", "MS_NODE_RANK": "1"},
    **{"MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "2222"},
}


@pytest.fixture
def in_pod(monkeypatch):
    for name, value in POD.items():
        monkeypatch.setenv(name, value)


def test_a_pods_variables_are_the_defaults(in_pod):
    given, _ = launch.parse([])
    assert (given.workers, given.nnodes, given.node_rank) == (16, 2, 1)
    assert (given.master_addr, given.master_port) == ("10.0.0.1", 2222)
    # flags come first
    given, _ = launch.parse(["--workers", "4", "--nnodes", "1", "--node-rank", "0"])
    assert (given.workers, given.nnodes, given.node_rank) == (4, 1, 0)


@pytest.mark.parametrize(
    ("variable", "value", "parts"),
    [
        ("MS_NODE_RANK", "one", "MS_NODE_RANK|'one'"),
        ("MS_LOCAL_WORKER", "5", "MS_WORKER_NUM: 16|MS_LOCAL_WORKER, 5"),
        ("MS_LOCAL_WORKER", "0", "MS_WORKER_NUM|MS_LOCAL_WORKER, 0"),
    ],
)
def test_wrong_variables_of_a_pod_are_named(
    in_pod, monkeypatch, raises_line, variable, value, parts
):
    monkeypatch.setenv(variable, value)
    with raises_line(*parts.split("|"), kind=UsageError):
        launch.parse([])


def test_a_pods_workers_do_not_get_its_variables(tmp_path, python):
    program = (
        "import json, os, sys; json.dump(dict(os.environ), open(f'{sys.argv[1]}/' + "
        "os.environ['RANK_ID'], 'w'))"
    )
    (tmp_path / "note.py").write_text(
        f"import os\nif os.environ['MS_ROLE'] == 'MS_WORKER':\n    {program}\n"
    )
    pod = {
        **POD,
        "MS_WORKER_NUM": "2",
        "MS_LOCAL_WORKER": "2",
        "MS_NODE_RANK": "0",
        "MS_SCHED_HOST": "127.0.0.1",
    }
    pod["MS_SCHED_PORT"] = "0"
    python("-m", "resnet_fn.launch", "--", "python", tmp_path / "note.py", tmp_path, **pod)
    for rank in ("0", "1"):
        environment = json.loads((tmp_path / rank).read_text())
        assert environment["MS_WORKER_NUM"] == "2"
        assert not {"MS_LOCAL_WORKER", "MS_NODE_RANK"} & environment.keys()


def test_a_pods_process_without_the_launcher_is_rejected(python, says):
    done = python("-m", "resnet_fn.train", "--out-dir", "run", code=1, **POD)
    says(done.stderr, "MS_LOCAL_WORKER", "8", "resnet_fn.launch")
    assert not Path("run").exists()
