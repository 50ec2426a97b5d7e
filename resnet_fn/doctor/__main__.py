"""python -m resnet_fn.doctor: whether this installation and this machine compute what they should."""

import argparse
import json
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
  python -m resnet_fn.doctor --acceptance accepted    all, in 10 minutes: a folder to send
"""


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
        Check("jpeg", storage.jpeg, "--image-pipeline fast decodes as Pillow does; else leave it out"),
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
        type=cli.folder_to_write,
        metavar="OUT",
        help="trainings too: PyTorch's numbers, several workers, kill and resume, speed; OUT is a new folder to send",
    )
    group.add_argument("--workers", type=int, metavar="N", help="with --acceptance: of several; default 2; 1: none")
    cli.add_device_flags(flags)
    group = flags.add_argument_group("what is written")
    group.add_argument("--json", type=cli.file_to_write, metavar="FILE", help="versions, variables and findings")
    group.add_argument("--keep", action="store_true", help="with --acceptance: leave what the trainings wrote in OUT")
    return flags


def main(arguments: Sequence[str]) -> int:
    """Try everything, say what was found, and name what is broken."""
    parsed = parser().parse(arguments)
    whole, workers_given = bool(parsed.acceptance), parsed.workers is not None
    cli.refuse(
        (workers_given and parsed.workers < 1, f"--workers: {parsed.workers} is too small; give 1 or more"),
        (not whole and (workers_given or parsed.keep), "--workers, --keep: go with --acceptance OUT"),
        (whole and bool(parsed.out_dir), "--out-dir: all goes to --acceptance OUT; leave it out"),
    )
    return accept_all(parsed) if whole else try_all(parsed)


def accept_all(parsed: argparse.Namespace) -> int:
    """The acceptance kit."""
    from resnet_fn.doctor.acceptance import accept
    from resnet_fn.doctor.page import summary
    from resnet_fn.runtime.workers import launched_by_msrun

    if launched_by_msrun():
        raise ValueError("acceptance: starts workers of its own; type it without msrun and resnet_fn.launch")
    out = Path(parsed.acceptance)
    result = accept(out, parsed.device, parsed.threads, parsed.workers or 2, parsed.keep)
    if parsed.json:
        cli.write_text(Path(parsed.json), json.dumps(result, indent=1) + "\n")
    print(f"\n{summary(result)}\nreport: {out / 'acceptance.md'}", flush=True)
    if result["broken"]:
        raise ValueError(f"broken: {', '.join(result['broken'])}; send the folder {out}")
    return 0


def try_all(parsed: argparse.Namespace) -> int:
    """The checks of a few seconds, in this process."""
    began, out = time.perf_counter(), Path(parsed.out_dir or ".")
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
        print(line(finding))
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
