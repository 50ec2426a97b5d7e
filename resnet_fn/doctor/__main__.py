"""python -m resnet_fn.doctor: whether this installation and this machine compute what they should."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resnet_fn.config import cli
from resnet_fn.config.hints import first_line

if TYPE_CHECKING:
    from resnet_fn.runtime.workers import Workers

_EXAMPLES = """examples:
  python -m resnet_fn.doctor --out-dir /data/runs
  python -m resnet_fn.doctor --device Ascend --json doctor.json
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.doctor
"""


class Check(NamedTuple):
    """One thing that is tried: its name, what does it, and what its answer means for a user."""

    name: str
    run: Callable[[], tuple[bool, str]]
    means: str


class Finding(NamedTuple):
    """What a check found."""

    name: str
    ok: bool
    found: str
    means: str


def checks(folder: Path, workers: "Workers") -> list[Check]:
    """All of them; `folder` is an empty one on the disk that runs are to be kept on."""
    from resnet_fn.doctor import arithmetic, storage

    return [
        Check("batchnorm", arithmetic.batchnorm, "0.1, PyTorch's momentum 0.1; else evaluations are wrong"),
        Check("nesterov", arithmetic.nesterov, "SGD is torch.optim.SGD; else no recipe's accuracy holds"),
        Check(
            "convolution",
            arithmetic.convolution,
            "in float32 and on a fast kernel; else nets train slowly or otherwise",
        ),
        Check("clip", arithmetic.clip, "gradients are clipped at --clip-norm; else at another norm"),
        Check(
            "overflow",
            arithmetic.overflow,
            "--precision fp16 can trust its loss scale; else it trains on cut gradients",
        ),
        Check("skip", arithmetic.skip, "a bad batch changes nothing; else it ruins the weights for good"),
        Check(
            "all-reduce", lambda: arithmetic.all_reduce(workers), "workers add up what they should; else they diverge"
        ),
        Check("checkpoint", lambda: storage.checkpoint(folder), "a run goes on bit for bit; else stopping changes it"),
        Check(
            "rename",
            lambda: storage.rename(folder),
            "a crash leaves old or new files, whole; else it may leave half ones",
        ),
        Check("free space", lambda: storage.free_space(folder), "checkpoints fit; else a run stops at one"),
        Check("jpeg", storage.jpeg, "image folders are seen as PIL sees them; else photographs train otherwise"),
    ]


def find(check: Check) -> Finding:
    """Do a check; one that raises has found something broken."""
    try:
        ok, found = check.run()
    except Exception as error:
        ok, found = False, f"{type(error).__name__}: {first_line(error)}"
    return Finding(check.name, ok, found, check.means)


def on_all_ranks(findings: list[Finding], workers: "Workers") -> list[Finding]:
    """What holds on every rank: a check that failed on any is broken, and its worker's log says how."""
    from resnet_fn.runtime.workers import sum_over_ranks

    counts = sum_over_ranks(np.array([not finding.ok for finding in findings], np.float32), workers)
    return [
        finding._replace(ok=False, found=f"broken on {count:.0f} of {workers.size} workers (see each one's log)")
        if count and finding.ok
        else finding
        for finding, count in zip(findings, counts, strict=True)
    ]


def parser() -> cli.Parser:
    """The flags."""
    flags = cli.Parser(
        "doctor",
        "Try out what training needs from MindSpore, the device and the disk; exit code 1: some is broken.",
        _EXAMPLES,
        "",
    )
    group = flags.add_argument_group("what is tried")
    group.add_argument("--out-dir", default=".", metavar="DIR", help="where runs will be kept; default here")
    cli.add_device_flags(flags)
    group = flags.add_argument_group("what is written")
    group.add_argument("--json", metavar="FILE", help="versions, variables and findings")
    return flags


def main(arguments: Sequence[str]) -> int:
    """Try everything, say what was found, and name what is broken."""
    parsed = parser().parse(arguments)
    began, out = time.perf_counter(), Path(parsed.out_dir)
    from resnet_fn.doctor import machine
    from resnet_fn.runtime import process
    from resnet_fn.runtime.workers import barrier, join

    process.start(parsed.device, parsed.threads)
    workers = join(parsed.device)
    if not out.is_dir():
        raise ValueError(f"out_dir: {out} is not a folder; make it, or give another")
    told: dict[str, Any] = machine.describe(parsed.device, parsed.threads, workers)
    if workers.is_main:
        print("\n".join([*machine.lines(told), ""]), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-", dir=out) as folder:
            mine = [find(check) for check in checks(Path(folder), workers)]
    except OSError as error:
        raise ValueError(f"out_dir: {out} cannot be written ({error.strerror}); give another") from None
    findings = on_all_ranks(mine, workers)
    for finding in findings if workers.is_main else [finding for finding in mine if not finding.ok]:
        print(f"{'ok' if finding.ok else 'BROKEN':7} {finding.name:12} {finding.found}\n{'':20} {finding.means}")
    broken = [finding.name for finding in findings if not finding.ok]
    barrier(workers)  # the first to end with an error code takes the others with it
    if workers.is_main:
        if parsed.json:
            written = {**told, "findings": [finding._asdict() for finding in findings], "broken": broken}
            cli.write_text(Path(parsed.json), json.dumps(written, indent=1) + "\n")
        print(
            f"\n{len(findings) - len(broken)} of {len(findings)} ok, in {time.perf_counter() - began:.0f} s", flush=True
        )
    if broken:
        raise ValueError(f"broken: {', '.join(broken)}")
    return 0


if __name__ == "__main__":
    cli.run("doctor", main)
