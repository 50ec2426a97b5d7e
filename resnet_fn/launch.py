"""The command `launch` trains on several workers, on one or more machines."""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from resnet_fn.config import cli
from resnet_fn.config.foreign_flags import advice_on_flag
from resnet_fn.config.output_paths import folder_to_write
from resnet_fn.config.printing import say
from resnet_fn.runtime import console
from resnet_fn.runtime.msrun import WorkerProcesses, claim_port, describe_exit
from resnet_fn.runtime.parent import LAUNCHED_BY
from resnet_fn.runtime.signals import SIGNALS, heeded

_EXAMPLES = """examples:
  python -m resnet_fn.launch --workers 2 -- --epochs 5 --out-dir runs/two
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.evaluate --checkpoint runs/two
  python -m resnet_fn.launch --workers 16 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 \\
      --master-port 8118 -- --out-dir /shared/runs/sixteen
"""
# Environment variables that MindCluster's operator sets in each pod of a Kubernetes job.
_POD = (
    "MS_ROLE",
    "MS_WORKER_NUM",
    "MS_LOCAL_WORKER",
    "MS_NODE_RANK",
    "MS_SCHED_HOST",
    "MS_SCHED_PORT",
)
_AFTER_FAILURE = 3.0  # seconds for the other workers to print their errors
_AFTER_END = 10.0  # seconds for the scheduler to see that all workers have left


def pod_defaults() -> dict[str, Any]:
    """Return the default values of the flags.

    In a MindCluster pod, the defaults are from environment variables.
    """
    variables = {name: os.environ.get(name, "") for name in _POD}
    if not variables["MS_LOCAL_WORKER"]:
        return {"workers": 2, "nnodes": 1, "node_rank": 0, "master_addr": None, "master_port": 0}
    if variables["MS_ROLE"] == "MS_SCHED" and os.environ.get("NPU_POD") == "false":
        raise cli.UsageError(
            "NPU_POD: the scheduler's pod has no card; give it as many cards as a worker's pod has"
        )
    names = ("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK", "MS_SCHED_PORT")
    wrong = (
        (not variables[name].isdecimal(), f"{name}: {variables[name]!r} is not a whole number")
        for name in names
    )
    cli.raise_usage_errors(*wrong)
    workers, local, rank, port = (int(variables[name]) for name in names)
    if not local or workers % local != 0:
        raise cli.UsageError(
            f"MS_WORKER_NUM: {workers} must be a multiple of MS_LOCAL_WORKER, {local}"
        )
    machines = {"workers": workers, "nnodes": workers // local, "node_rank": rank}
    return {**machines, "master_addr": variables["MS_SCHED_HOST"] or None, "master_port": port}


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags, and the command that each worker runs."""
    about = (
        "Start workers with msrun, and forward signals to them.\nThe exit code is that of the "
        "first failed worker."
    )
    parser = cli.Parser("launch", about, _EXAMPLES, "")
    parser.usage = f"{parser.usage} -- [flags of train, or python or resnet_fn and a command]"
    parser.set_defaults(**pod_defaults())
    workers_help = "total number of workers on all machines; default %(default)s"
    parser.add_argument("--workers", type=int, metavar="N", help=workers_help)
    logs = "folder for the workers' output; default: a temporary folder"
    parser.add_argument("--log-dir", type=folder_to_write, metavar="DIR", help=logs)
    group = parser.add_argument_group(
        "several machines (run the same command on each, with its own --node-rank)"
    )
    group.add_argument("--nnodes", type=int, metavar="N", help="number of machines; default 1")
    group.add_argument(
        "--node-rank", type=int, metavar="N", help="number of this machine, from 0; default 0"
    )
    group.add_argument(
        "--master-addr",
        metavar="IP",
        help="address of machine 0; default for one machine: 127.0.0.1",
    )
    group.add_argument(
        "--master-port", type=int, metavar="N", help="port of machine 0; default: a free port"
    )
    split = list(arguments).index("--") if "--" in arguments else len(arguments)
    flags = arguments[:split]
    command = list(arguments[split + 1 :])
    if not command and (unknown := parser.parse_known(flags)[1]):
        advice = advice_on_flag(unknown[0], ("--workers", "--nnodes", "--node-rank"))
        hint = advice or "put the arguments of resnet_fn.train after --"
        parser.error(f"unknown argument {unknown[0]!r}; {hint}")
    parsed = parser.parse(flags)
    workers, nodes, port = parsed.workers, parsed.nnodes, parsed.master_port
    uneven = min(workers, nodes) > 0 and workers % nodes
    cli.raise_usage_errors(
        (workers < 1, f"--workers: {workers} is too small; give 1 or more"),
        (nodes < 1, f"--nnodes: {nodes} is too small; give 1 or more"),
        (
            nodes > 0 and not 0 <= parsed.node_rank < nodes,
            f"--node-rank: {parsed.node_rank} is not in 0..{nodes - 1}",
        ),
        (uneven, f"--workers: {workers} cannot be divided evenly among {nodes} machines"),
        (not 0 <= port < 65536, f"--master-port: {port} is not in 0..65535"),
        (nodes > 1 and not port, "--master-port: several machines need the same port; give 8118"),
        (
            nodes > 1 and not parsed.master_addr,
            f"--master-addr: {nodes} machines need it; give machine 0's address",
        ),
    )
    parsed.master_addr = parsed.master_addr or "127.0.0.1"
    return parsed, [sys.executable, *_python_words(command)]


def _python_words(command: list[str]) -> list[str]:
    """Return Python's arguments for what the user typed after --."""
    first = Path(command[0]).name if command else ""
    if re.fullmatch(r"python[0-9.]*", first):
        return command[1:]
    if first == "resnet_fn":
        return ["-m", "resnet_fn", *command[1:]]
    return ["-m", "resnet_fn.train", *command]


def watch(processes: WorkerProcesses, first_log: Path, signals: list[int]) -> None:
    """Print the log `first_log` and forward `signals` until the workers end.

    If a process fails, wait only 3 s more.
    """
    deadline = float("inf")
    with open(first_log, encoding="utf-8", errors="replace", newline="") as log:
        while processes.running and time.monotonic() < deadline:
            time.sleep(0.05)
            processes.poll()
            while signals:
                processes.send(signals.pop(0))
            print(_shown(log.read()), end="", flush=True)
            failed = any(processes.ended.values())
            left = list(processes.running.values())
            if failed or left == ["scheduler"]:
                deadline = min(
                    deadline, time.monotonic() + (_AFTER_FAILURE if failed else _AFTER_END)
                )


def _shown(log: str) -> str:
    # MindSpore prints these lines when a process ends
    return re.sub(r"^\[INFO\] .*\n?", "", log, flags=re.M)


def exit_code(ended: dict[str, int], logs: Path, has_scheduler: bool) -> int:
    """Return the launcher's exit code.

    Report a failed worker on stderr, unless a signal ended the worker.
    """
    failed = [name for name, code in ended.items() if code]
    name = min(failed, key=lambda name: name == "scheduler", default="")  # a worker, if any failed
    code = ended.get(name, 0)
    # not an old job's log
    log = (logs / "scheduler.log").read_text(errors="replace") if has_scheduler else ""
    if silent := re.findall(r"The node: (\d+) is timed out", log):
        who = ", ".join(dict.fromkeys(silent))
        seconds = os.environ.get("MS_NODE_TIMEOUT", "30")
        say(
            f"launch: no heartbeat of worker {who} for {seconds} s: the worker or its machine "
            "hangs or has died, or a clock was set forward; "
            "set MS_NODE_TIMEOUT=SECONDS to wait longer",
            stream=sys.stderr,
        )
        # MindSpore may have ended the other workers with SIGTERM
        return ended.get("scheduler") or 1
    if code and code - 128 not in SIGNALS:
        end = "\n".join(
            _shown((logs / f"{name}.log").read_text(errors="replace")).splitlines()[-20:]
        )
        worker = name.replace("_", " ")
        print(
            f"launch: {worker} ended with {describe_exit(code)}; its log ends:\n{end}",
            file=sys.stderr,
        )
    return code


def main(arguments: Sequence[str]) -> int:
    """Start the workers, wait until they end, and kill the processes that are left."""
    parsed, command = parse(arguments)
    for name in _POD:  # msrun sets these variables for the workers
        os.environ.pop(name, None)
    # added flags must reach the workers
    typed = [*console.typed_command(), *([] if "--" in arguments else ["--"])]
    console.outlive_console()
    port = parsed.master_port
    local = parsed.workers // parsed.nnodes
    if parsed.node_rank == 0:
        port = claim_port(parsed.master_addr, port, "--master-port")
    flags = ["--worker_num", parsed.workers, "--local_worker_num", local]
    flags += ["--master_addr", parsed.master_addr, "--master_port", port]
    flags += ["--node_rank", parsed.node_rank] if parsed.nnodes > 1 else []
    signals: list[int] = []
    # if it were ignored, the workers' exit codes would be lost
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in heeded():
        signal.signal(number, lambda got, _: signals.append(got))
    ranks = range(parsed.node_rank * local, (parsed.node_rank + 1) * local)
    processes = WorkerProcesses()
    with (
        nullcontext(parsed.log_dir)
        if parsed.log_dir
        else tempfile.TemporaryDirectory(prefix="launch-") as folder
    ):
        logs = Path(folder).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        try:
            processes.start(flags, ranks, command, logs, {LAUNCHED_BY: json.dumps(typed)})
            has_scheduler = "scheduler" in processes.running.values()
            watch(processes, logs / f"worker_{ranks[0]}.log", signals)
            return exit_code(processes.ended, logs, has_scheduler)
        finally:
            processes.kill()


if __name__ == "__main__":
    cli.run("launch", main)
