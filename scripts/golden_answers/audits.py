"""The nets of docs/audit.md: what the ladder says of each port, as golden answers.

Each net has a process of its own, of the checkout in the current folder and of its audits. They
need what scripts/audit_ports/install.sh installs; for MindCV mindcv, torchvision and timm. A net
of MindCV is compared as that page says, in a whole update or by its layers' outputs, and once more
with its faults put right.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from golden_answers import plugin

SCRIPTS = Path(__file__).resolve().parents[1]
MINDONE, MINDCV = "mindone", "mindcv"
# compared in a whole update; the other nets of MindCV by their layers' outputs
UPDATED = {"resnet18", "resnet50", "squeezenet1_1", "mobilenet_v2_100", "regnet_x_400mf"}
UPDATED |= {"regnet_y_400mf", "repvgg_a0", "ghostnet_050"}
# that page leaves them out
NOT_COMPARED = {"rexnet_10", "mobilevit_xx_small", "res2net50", "pvt_v2_b0", "convit_tiny"}
SECONDS = 1800  # the longest time of a net


def _paths() -> list[str]:
    scripts = Path.cwd() / "scripts"
    return [str(SCRIPTS), os.getcwd(), str(scripts), str(scripts / "audit_ports")]


def all_nets() -> list[str]:
    """Return the nets of both audits: "mindone bert", "mindcv resnet18"."""
    sys.path[:0] = _paths()
    ports, cells = (importlib.import_module(name).NETS for name in ("nets", "audit_mindcv"))
    compared = [name for name in cells if name not in NOT_COMPARED]
    return [f"{MINDONE} {name}" for name in ports] + [f"{MINDCV} {name}" for name in compared]


def run(folder: Path, names: Sequence[str]) -> int:
    """Write the answers of these nets that the folder lacks, and return how many have none."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        place = plugin.folder_of(name, folder)
        if place.exists():
            continue
        with tempfile.TemporaryDirectory() as current:
            error = _run_one(name, Path(current))
            written = plugin.folder_of(name, Path(current, "golden"))
            if written.exists():
                shutil.move(written, place)  # once it is whole
        print(f"{name}: {'done' if place.exists() else error}", flush=True)
        failed += not place.exists()
    return failed


def _run_one(name: str, current: Path) -> str:
    """Compare a net in a process that begins in this folder, which MindSpore may write into."""
    environment = {
        **os.environ,
        "GOLDEN": str(current / "golden"),
        "GOLDEN_TEST": name,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([*_paths(), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "golden_answers.audits", *name.split()]
    done = subprocess.run(
        command, cwd=current, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    return (done.stderr.strip() or "no output").splitlines()[-1]


def compare_one(audit: str, name: str) -> None:
    """Compare one net in this process, and write the answers."""
    plugin.one_thread()
    plugin.take_answers()
    if audit == MINDONE:
        importlib.import_module("run").ladder_of(name, Path.cwd())
        return
    module = importlib.import_module("audit_mindcv")
    for fixes in dict.fromkeys(((), module.NETS[name].fixes)):
        ladder = module.ladder_of(name, fixes, forward=name not in UPDATED)
        plugin.write_once(ladder, plugin.answer_of_comparison)


if __name__ == "__main__":
    compare_one(*sys.argv[1:])
