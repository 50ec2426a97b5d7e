"""The command `doctor` tests whether this installation and this machine compute correctly."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.output_paths import file_to_write
from resnet_fn.config.printing import say
from resnet_fn.config.wording import words_of
from resnet_fn.doctor import machine
from resnet_fn.runtime import process
from resnet_fn.runtime.disk import writing
from resnet_fn.runtime.outputs import check_output, has_keys, write_output
from resnet_fn.runtime.workers import Workers, barrier, sum_over_ranks

_EXAMPLES = """examples:
  python -m resnet_fn.doctor --out-dir /data/runs
  python -m resnet_fn.doctor --device Ascend --json doctor.json
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.doctor
  python -m resnet_fn.doctor ported.py:Net
"""
# (name of the check, function that returns (ok, text), meaning of the result for a user)
Check = tuple[str, Callable[[], tuple[bool, str]], str]
# result of a check: "name", "ok", "found" (the text), "means" (the meaning)
Finding = dict[str, Any]


# Long: one row for each check.
def checks(folder: Path, workers: Workers) -> list[Check]:
    """Return all checks. `folder` is an empty folder on the disk where runs will be saved."""
    from resnet_fn.doctor.arithmetic import (
        all_reduce,
        batchnorm,
        clip,
        convolution,
        nesterov,
        overflow,
        skip,
        transfer,
    )
    from resnet_fn.doctor.storage import checkpoint, free_space, rename

    several = (
        "all-reduce",
        lambda: all_reduce(workers),
        "workers get right sums; otherwise their weights diverge",
    )
    return [
        (
            "transfer",
            transfer,
            "batches reach the device unchanged; otherwise nets train on wrong images",
        ),
        (
            "batchnorm",
            batchnorm,
            "a weight of 0.1 is right, as in PyTorch; otherwise evaluations are wrong",
        ),
        (
            "nesterov",
            nesterov,
            "SGD computes the same as torch.optim.SGD; otherwise recipes lose accuracy",
        ),
        (
            "convolution",
            convolution,
            "exact to float32 and fast; otherwise nets train differently or slowly",
        ),
        ("clip", clip, "gradients are clipped at --clip-norm; otherwise at another norm"),
        (
            "overflow",
            overflow,
            "--precision fp16 notices overflows; otherwise it trains on wrong gradients",
        ),
        ("skip", skip, "a bad batch is skipped; otherwise it destroys the weights"),
        *([several] if workers.size > 1 else []),
        (
            "checkpoint",
            lambda: checkpoint(folder),
            "a run resumes bit for bit; otherwise a resumed run differs",
        ),
        (
            "rename",
            lambda: rename(folder),
            "files are whole and have one writer; otherwise they may be cut or mixed",
        ),
        (
            "free space",
            lambda: free_space(folder),
            "checkpoints fit on the disk; otherwise a run stops",
        ),
    ]


def attempt(check: Check) -> Finding:
    """Run a check and return the finding. A check that raises an error has failed."""
    name, run, means = check
    try:
        ok, text = run()
    except Exception as error:
        ok = False
        text = words_of(error)
    return {"name": name, "ok": ok, "found": text, "means": means}


def on_all_workers(findings: list[Finding], workers: Workers) -> list[Finding]:
    """Combine the findings of all workers. A check that failed on any worker has failed."""
    counts = sum_over_ranks(
        np.array([not finding["ok"] for finding in findings], np.float32), workers
    )
    combined = []
    for finding, count in zip(findings, counts, strict=True):
        if count and finding["ok"]:
            text = f"broken on {count:.0f} of {workers.size} workers (see the log of each worker)"
            finding = {**finding, "ok": False, "found": text}
        combined.append(finding)
    return combined


def lines_of(finding: Finding) -> list[str]:
    """Return a finding as two lines of text."""
    title = f"{'ok' if finding['ok'] else 'BROKEN':7} {finding['name']}"
    return [f"{title:20} {finding['found']}", f"{'':20} {finding['means']}"]


# Long: flags, checks and what is printed, in the order of the output.
def main(arguments: Sequence[str]) -> int:
    """Run all checks and print the findings, or list a net's defaults that a later MindSpore
    changes.
    """
    flags = cli.Parser(
        "doctor",
        "Test MindSpore, the device and the disk. The exit code is 1 if a check fails.",
        _EXAMPLES,
    )
    group = flags.add_argument_group("a port")
    group.add_argument(
        "net",
        nargs="?",
        metavar="FILE:NAME",
        help="list the net's defaults that will change; no tests",
    )
    group = flags.add_argument_group("tests")
    group.add_argument(
        "--out-dir", metavar="DIR", help="folder for the runs; default: the current folder"
    )
    shared_flags.add_device_flags(flags)
    group = flags.add_argument_group("output")
    group.add_argument(
        "--json",
        type=file_to_write,
        metavar="FILE",
        help="write versions, variables and findings",
    )
    parsed = flags.parse(arguments)
    cli.raise_usage_errors(
        (
            parsed.net and (parsed.json or parsed.out_dir),
            "net: with FILE:NAME no tests run; leave out --json and --out-dir",
        )
    )
    if parsed.json:
        with cli.as_usage_error():
            check_output("--json", parsed.json, has_keys(("findings", "broken")))
    began = time.perf_counter()
    out = Path(parsed.out_dir or ".")
    workers = process.start(parsed.device, parsed.threads)
    if parsed.net:
        from resnet_fn.doctor.port import resting_settings

        nothing = f"{parsed.net}: nothing depends on a default that a later MindSpore changes"
        say(*resting_settings(parsed.net) or [nothing])
        return 0
    if not out.is_dir():
        raise ValueError(f"out_dir: {out} is not a folder; create it, or give another folder")
    description = machine.describe_machine(parsed.device, parsed.threads, workers)
    if workers.is_main:
        say(*machine.lines(description), "")
    with (
        writing(f"out_dir: {out}", "give another folder"),
        tempfile.TemporaryDirectory(prefix="doctor-", dir=out) as folder,
    ):
        local = [attempt(check) for check in checks(Path(folder), workers)]
    findings = on_all_workers(local, workers)
    for finding in findings if workers.is_main else local:
        if workers.is_main or not finding["ok"]:
            say(*lines_of(finding))
    broken = [finding["name"] for finding in findings if not finding["ok"]]
    barrier(workers)  # when the first worker exits with an error code, msrun ends the others
    if workers.is_main:
        if parsed.json:
            written = {**description, "findings": findings, "broken": broken}
            write_output(parsed.json, json.dumps(written, indent=1) + "\n")
        seconds = time.perf_counter() - began
        count = len(findings)
        say("", f"{count - len(broken)} of {count} ok, in {seconds:.0f} s")
    if broken:
        raise ValueError(f"broken: {', '.join(broken)}")
    return 0


if __name__ == "__main__":
    cli.run("doctor", main)
