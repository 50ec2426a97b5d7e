"""python -m resnet_fn.doctor: whether this installation and this machine compute what they should."""

import json
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnet_fn.config import cli
from resnet_fn.doctor.findings import Check, find, line, on_all_ranks

if TYPE_CHECKING:
    from resnet_fn.runtime.workers import Workers

_EXAMPLES = """examples:
  python -m resnet_fn.doctor --out-dir /data/runs
  python -m resnet_fn.doctor --device Ascend --json doctor.json
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.doctor
  python -m resnet_fn.doctor --acceptance      shows how trainings too are tried out
"""


def checks(folder: Path, workers: "Workers") -> list[Check]:
    """All of them; `folder` is an empty one on the disk that runs are to be kept on."""
    from resnet_fn.doctor.arithmetic import all_reduce, batchnorm, clip, convolution, nesterov, overflow, skip
    from resnet_fn.doctor.storage import checkpoint, free_space, rename

    several = Check("all-reduce", lambda: all_reduce(workers), "workers add up what they should; else they diverge")
    return [
        Check("batchnorm", batchnorm, "0.1, PyTorch's momentum 0.1; else evaluations are wrong"),
        Check("nesterov", nesterov, "SGD is torch.optim.SGD; else no recipe's accuracy holds"),
        Check("convolution", convolution, "in float32 and on a fast kernel; else nets train slowly or otherwise"),
        Check("clip", clip, "gradients are clipped at --clip-norm; else at another norm"),
        Check("overflow", overflow, "--precision fp16 can trust its loss scale; else it trains on cut gradients"),
        Check("skip", skip, "a bad batch changes nothing; else it ruins the weights for good"),
        *([several] if workers.size > 1 else []),
        Check("checkpoint", lambda: checkpoint(folder), "a run goes on bit for bit; else stopping changes it"),
        Check(
            "rename",
            lambda: rename(folder),
            "files are whole after a crash, one run at a time writes; else there may be half ones, or two",
        ),
        Check("free space", lambda: free_space(folder), "checkpoints fit; else a run stops at one"),
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
    group.add_argument("--out-dir", metavar="DIR", help="where runs will be kept; default here")
    group.add_argument(
        "--acceptance",
        nargs="?",
        const="accepted",
        metavar="OUT",
        help="show the command that tries out trainings too and leaves a folder to send; then stop",
    )
    cli.add_device_flags(flags)
    group = flags.add_argument_group("what is written")
    group.add_argument("--json", type=cli.file_to_write, metavar="FILE", help="versions, variables and findings")
    return flags


def main(arguments: Sequence[str]) -> int:
    """Try everything, say what was found, and name what is broken."""
    parsed = parser().parse(arguments)
    if parsed.acceptance:
        print(
            "trainings, several workers, kill and resume, speed: in a checkout of resnet_fn's repository (an installed "
            "package does not hold the tests), with its [test] extra,\n"
            f"  python -m pytest tests/acceptance --device {parsed.device} --out {shlex.quote(parsed.acceptance)}"
        )
        return 0
    began, out = time.perf_counter(), Path(parsed.out_dir or ".")
    from resnet_fn.doctor import machine
    from resnet_fn.runtime import process
    from resnet_fn.runtime.workers import barrier

    workers = process.start(parsed.device, parsed.threads)
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
        print(line(finding))
    broken = [finding.name for finding in findings if not finding.ok]
    barrier(workers)  # the first to end with an error code takes the others with it
    if workers.is_main:
        if parsed.json:
            written = {**told, "findings": [finding._asdict() for finding in findings], "broken": broken}
            cli.write_text(Path(parsed.json), json.dumps(written, indent=1) + "\n")
        ok = len(findings) - len(broken)
        print(f"\n{ok} of {len(findings)} ok, in {time.perf_counter() - began:.0f} s", flush=True)
    if broken:
        raise ValueError(f"broken: {', '.join(broken)}")
    return 0


if __name__ == "__main__":
    cli.run("doctor", main)
