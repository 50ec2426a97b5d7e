"""What a machine must be able to do, tried by the package's own commands; a folder to send says
what came of it.

    python -m pytest tests/acceptance --device Ascend --out accepted

One process, which starts no device: each command has it to itself. `python -m pytest` does not
collect these tests.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import resnet_fn
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.doctor.machine import describe_machine, lines
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry import read_log

LONGEST = 1800.0  # seconds: a command that takes longer hangs


def pytest_addoption(parser):
    group = parser.getgroup("acceptance")
    group.addoption(
        "--device", default="CPU", choices=("CPU", "Ascend"), help="of every command; default CPU"
    )
    group.addoption(
        "--workers",
        type=int,
        default=2,
        help="of checks that need several; default 2; 1: not tried",
    )
    group.addoption("--out", default="accepted", help="a new folder, to be sent; default accepted")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Without pytest-xdist, whose processes would share the device."""
    config.option.numprocesses = 0


class Check:
    """One check: its commands run in OUT/work/NAME, and what they print goes to OUT/logs/NAME.log.

    Attributes:
        folder: where its commands run.
        typed: they, as they can be typed again there.
        text, numbers: what the check says in the report.
    """

    def __init__(self, kit, name):
        self.kit, self.name, self.device, self.workers = kit, name, kit.device, kit.workers
        self.folder, self.log = kit.out / "work" / name, kit.out / "logs" / f"{name}.log"
        self.typed, self.text, self.numbers = [], "", {}
        self.folder.mkdir()

    def says(self, text, **numbers):
        """Add to what the report says."""
        self.text = f"{self.text}; {text}" if self.text else text
        self.numbers |= numbers

    def run(self, command, *words, codes=(0,)):
        """Run `python -m resnet_fn.COMMAND WORDS` to its end."""
        return self._wait(["-m", f"resnet_fn.{command}", *words, "--device", self.device], codes)

    def launch(self, command, *words):
        """The same on several workers."""
        words = ("python", "-m", f"resnet_fn.{command}", *words, "--device", self.device)
        return self._wait(
            ["-m", "resnet_fn.launch", "--workers", str(self.workers), "--", *words], (0,)
        )

    def train_and_kill(self, run, update, *words):
        """Train, and end the process with SIGKILL when a checkpoint of `update` or a later one is
        there.

        Returns:
            The newest checkpoint's update.
        """
        process = self._start(
            ["-m", "resnet_fn.train", *words, "--out-dir", run, "--device", self.device]
        )
        deadline = time.monotonic() + LONGEST
        try:
            while (newest := max(RunFolder(self.folder / run).updates(), default=0)) < update:
                running = process.poll() is None and time.monotonic() < deadline
                assert running, (
                    f"{self.typed[-1]}: ended or hung before update {update} ({self.last_error()})"
                )
                time.sleep(0.002)
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL, "it was at its end before it could be killed"
        return newest

    def events(self, run, kind="train"):
        """What a run has logged."""
        return [
            event
            for event in read_log(self.folder / run / "metrics.jsonl")
            if event["event"] == kind
        ]

    def last_error(self):
        """What the last command named as its error; its last line where it named none."""
        printed = self.log.read_text(errors="replace").strip().splitlines()
        return ([line for line in printed if ": error: " in line] or printed)[-1]

    def _start(self, words):
        self.typed.append(shlex.join(["python", *words]))
        # from this checkout, wherever the commands run
        source = str(Path(resnet_fn.__file__).parents[1])
        with open(self.log, "ab") as log:
            log.write(f"$ {self.typed[-1]}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _wait(self, words, codes):
        process = self._start(words)
        try:
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.typed[-1]}: took more than {LONGEST / 60:.0f} minutes")
        finally:
            process.kill()  # its workers save and end then; nothing where it has ended
            process.wait()
        assert code in codes, f"{self.typed[-1]}: exit code {code}: {self.last_error()}"
        return code


class Kit:
    """All checks and their report, OUT/acceptance.md and acceptance.json."""

    def __init__(self, config):
        self.out = Path(config.invocation_params.dir, config.getoption("out"))
        self.device, self.workers = config.getoption("device"), config.getoption("workers")
        self.checks, self.began = [], time.perf_counter()
        if self.out.exists() and any(self.out.iterdir()):
            pytest.exit(f"--out: {self.out} is not empty; give a new folder", returncode=2)
        for name in ("work", "logs"):
            (self.out / name).mkdir(parents=True)

    def note(self, check, report, means):
        """What came of a check, as pytest reports it."""
        ok = {"passed": True, "failed": False}.get(report.outcome)
        why = reason(report)
        self.checks.append(
            {
                "name": check.name,
                "ok": ok,
                "found": "; ".join(part for part in (why, check.text) if part),
                "means": means,
                "seconds": report.duration,
                "numbers": check.numbers,
                "commands": check.typed,
            }
        )

    def write(self):
        """Write the report; what the trainings wrote goes where all is well."""
        file = self.out / "doctor.json"
        machine = (
            json.loads(file.read_text())
            if file.exists()
            else describe_machine(self.device, 0, Workers())
        )
        result = {
            "machine": {
                name: value for name, value in machine.items() if name not in ("findings", "broken")
            },
            "workers": self.workers,
            "checks": self.checks,
            "broken": [check["name"] for check in self.checks if check["ok"] is False],
            "not_tried": [check["name"] for check in self.checks if check["ok"] is None],
            "seconds": time.perf_counter() - self.began,
        }
        (self.out / "acceptance.json").write_text(
            json.dumps(result, indent=1) + "\n", encoding="utf-8"
        )
        (self.out / "acceptance.md").write_text(page(result), encoding="utf-8")
        for check in self.checks:
            if check["ok"] is not False and not (result["broken"] and check["name"] == "golden"):
                shutil.rmtree(self.out / "work" / check["name"])
        if not result["broken"]:
            shutil.rmtree(self.out / "work")


def reason(report):
    """Why a test was skipped, or the first line of what a failed one says; empty where all is
    well.
    """
    if report.passed:
        return ""
    if report.skipped:
        return report.longrepr[-1].removeprefix("Skipped: ")
    message = (
        getattr(getattr(report.longrepr, "reprcrash", None), "message", "") or report.longreprtext
    )
    return message.removeprefix("AssertionError: ").partition("\n")[0]


def page(result):
    """The report for a reader."""
    verdicts = {True: "ok", False: "BROKEN", None: "not tried"}
    rows = []
    details = []
    for check in result["checks"]:
        verdict = verdicts[check["ok"]]
        cell = check["found"].replace("|", "\\|")
        rows.append(f"| {check['name']} | {verdict} | {cell} | {check['seconds']:.0f} |")
        typed = "\n".join(f"    {command}" for command in check["commands"])
        details.append(
            f"### {check['name']}: {verdict}\n\n{check['means']}\n\nlogs/{check['name']}.log, "
            f"of\n\n{typed}\n"
        )
    good = sum(check["ok"] is True for check in result["checks"])
    broken = f"; BROKEN: {', '.join(result['broken'])}" if result["broken"] else ""
    skipped = f"; not tried: {', '.join(result['not_tried'])}" if result["not_tried"] else ""
    head = (
        f"# Acceptance\n\n{good} of {len(result['checks'])} ok, in {result['seconds']:.0f} "
        f"s{broken}{skipped}\n"
    )
    machine = "\n".join(f"    {line}" for line in lines(result["machine"]))
    table = "\n".join(["| check | verdict | found | seconds |", "|---|---|---|---|", *rows])
    return "\n".join([head, machine, "", table, "", "## Each check", "", *details])


KIT = pytest.StashKey[Kit]()


@pytest.fixture(scope="session")
def kit(pytestconfig):
    pytestconfig.stash[KIT] = Kit(pytestconfig)
    return pytestconfig.stash[KIT]


@pytest.fixture
def check(kit, request):
    return Check(kit, request.node.name.removeprefix("test_"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if "check" in item.funcargs and (
        call.when == "call" or (call.when == "setup" and not report.passed)
    ):
        item.config.stash[KIT].note(
            item.funcargs["check"], report, " ".join(item.function.__doc__.split())
        )
    return report


def pytest_terminal_summary(terminalreporter, config):
    kit = config.stash.get(KIT, None)
    if kit and kit.checks:
        kit.write()
        terminalreporter.write_line(f"report: {kit.out / 'acceptance.md'}; send the folder")
