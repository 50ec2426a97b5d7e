"""Real training processes, ended in every way there is: the resumed run ends with the unbroken
run's bits.
"""

import array
import fcntl
import itertools
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.runtime import process
from resnet_fn.runtime.parent import children

# Two micro-batches an update, five updates an epoch, 30 in all, a checkpoint after each.
RECIPE = shlex.split("--model resnet8 --image-size 8 --batch-size 240 --epochs 6 --accumulate 2")
RUN = [*RECIPE, "--checkpoint-every", "1", "--keep-last", "2", "--threads", "1", "--no-progress"]


def command(folder, more=(), form=("-m", "resnet_fn.train")):
    return [sys.executable, *map(str, form), *RUN, *more, "--out-dir", str(folder)]


def popen(words, **how):
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how
    )


def start(folder, more=()):
    return popen(command(folder, more))


@pytest.fixture(scope="module")
def finish(python):
    return lambda folder, more=(): python(*command(folder, more)[1:], seconds=300).stdout


@pytest.fixture(scope="module")
def curve(events):
    """(update, loss) of every logged update, in order."""
    return lambda folder: [(event["update"], event["loss"]) for event in events(folder, "train")]


@pytest.mark.slow
@pytest.mark.release
def test_killed_at_random_moments_runs_keep_their_bits(
    launcher, finish, curve, last_state, tmp_path
):
    """Five processes of a fine-tuning, each killed with SIGKILL soon after its first checkpoint,
    then one to the end.

    AdamW, frozen parts, rates by layer, what is left out at random, class weights, balanced
    sampling, patience. Nothing is compiled, which each of the seven processes would do anew.
    (Compiled: tests/run/test_loop.py and tests/acceptance. What a death in a save leaves of a
    checkpoint: test_damage.py.)
    """
    flags = shlex.split(
        "--optimizer adamw --learning-rate 0.005 --freeze stem,layer1 --layer-decay 0.75"
    )
    flags += ["--drop-path", "0.3", "--dropout", "0.2", "--sampling", "balanced"]
    flags += ["--class-weights", str(tmp_path / "weights.txt")]
    rows = (f"{label} {1 + label % 3}\n" for label in range(10))
    (tmp_path / "weights.txt").write_text("".join(rows))
    flags += shlex.split("--monitor macro_f1 --patience 12 --epochs 12 --mode pynative")
    finish(tmp_path / "unbroken", flags)
    run = tmp_path / "killed"
    rng = random.Random(0)
    for _ in range(5):
        child = start(run, flags)
        launcher.wait_for_update(run, child)
        time.sleep(rng.uniform(0, 0.1))
        child.kill()
        output, _ = child.communicate()
        assert child.returncode == -signal.SIGKILL, output
    assert "resuming after update" in finish(run, flags)
    assert last_state(run) == last_state(tmp_path / "unbroken")
    assert last_state(run)[0]["update"] == 60
    assert curve(run) == curve(tmp_path / "unbroken")
    assert not list((run / "checkpoints").glob("*.tmp-*"))


@pytest.mark.slow
def test_stopped_anywhere_in_an_epoch_runs_keep_bits(curve, last_state, tmp_path, monkeypatch):
    """A signal while an update's micro-batches or an evaluation's batches are computed, two more
    while the checkpoint is written; resumed. Nothing is compiled, which each of the eleven runs
    would do anew."""
    from resnet_fn import train
    from resnet_fn.checkpoint import folder as checkpoint
    from resnet_fn.evaluation import scoring
    from resnet_fn.run import loop
    from resnet_fn.run.prefetch import Prefetcher
    from resnet_fn.train import parse

    # as many updates
    flags = [*RUN, "--dataset", "synthetic", "--synthetic-samples", "40", "--batch-size", "8"]
    flags += ["--checkpoint-every", "0", "--mode", "pynative"]
    recipe, options, _ = parse([*flags, "--out-dir", str(tmp_path / "run")])
    process.start("CPU", options.threads)
    fetch = loop.fetch
    get = Prefetcher.get
    fsync = os.fsync
    eval_batches = scoring.eval_batches
    sent = False

    def signal_in(where):
        nonlocal left, sent
        if where == place:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)
                sent = True

    def fetch_then_signal(result):
        # the flags of this update are exchanged already: the next one reports it
        signal_in("results")
        return fetch(result)

    def get_then_signal(self, update):
        signal_in(f"take {update}")
        return get(self, update)

    def eval_batches_then_signal(*arguments):
        signal_in("evaluation")
        return eval_batches(*arguments)

    def signal_then_fsync(descriptor):
        if sent:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        fsync(descriptor)

    monkeypatch.setattr(loop, "fetch", fetch_then_signal)
    monkeypatch.setattr(Prefetcher, "get", get_then_signal)
    monkeypatch.setattr(checkpoint.os, "fsync", signal_then_fsync)
    monkeypatch.setattr(scoring, "eval_batches", eval_batches_then_signal)
    # A signal before a process's first update would end it at once, this one too: so each run does
    # two updates, or evaluates. The numbers: at which of these moments in its run, and after which
    # update it stops.
    stops = [
        ("results", 1, 2),
        ("results", 1, 4),
        ("take 5", 1, 6),
        ("results", 1, 8),
        ("results", 1, 10),
    ]
    stops += [
        ("evaluation", 1, 10),
        ("evaluation", 2, 15),
        ("results", 5, 20),
        ("evaluation", 3, 30),
    ]
    # No SIGINT, of which MindSpore may make a SIGTERM, where the command does not block it.
    numbers = itertools.cycle((signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
    for (place, left, update), number in zip(stops, numbers, strict=False):  # noqa: B007 (read above)
        sent = False
        result = train(recipe, options)
        newest = RunFolder(result.run).newest().state
        assert (result.stopped, result.updates, newest["update"]) == (number, update, update)
        # Stopped in an evaluation, or at an epoch's last update: the evaluation is still owed.
        assert (place != "evaluation" and update % 5) or newest["last"]["update"] < update
    sent = False
    result = train(recipe, options)
    assert (result.stopped, result.updates) == (0, 30)
    unbroken = train(*parse([*flags, "--out-dir", str(tmp_path / "unbroken")])).run
    assert last_state(result.run) == last_state(unbroken)
    assert curve(result.run) == curve(unbroken)


def unread(pipe):
    """The number of bytes in a pipe that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def end_at_once(process, number, code):
    process.send_signal(number)
    sent = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert time.monotonic() - sent < 15
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_signals_before_update_1_end_runs_at_once(
    wait_until, installed, all_cpus, number, code, tmp_path
):
    """In a list of images that never ends, then while the first update is compiled: there is
    nothing to save.

    On all CPUs, where NumPy has threads, one of which may get a Ctrl-C.
    """
    reader, writer = os.pipe()
    (tmp_path / "val.txt").write_text("a.jpg 0\nb.jpg 1\n")
    flags = ["--dataset", "imagefolder", "--data-dir", str(tmp_path), "--image-size", "8"]
    flags += ["--train-list", f"/dev/fd/{reader}", "--val-list", str(tmp_path / "val.txt")]
    process = popen(
        [sys.executable, "-m", "resnet_fn.train", *flags, "--out-dir", str(tmp_path / "files")],
        pass_fds=(reader,),
    )
    os.write(writer, b"a.jpg 0\n")
    wait_until(lambda: not unread(writer), 120, process)
    end_at_once(process, number, code)
    os.close(writer)
    os.close(reader)
    assert not (tmp_path / "files").exists()

    process = popen([*all_cpus, *command(tmp_path / "run", form=(installed, "train"))])
    wait_until((tmp_path / "run" / "config.json").exists, 120, process)
    output = end_at_once(process, number, code)
    if number == signal.SIGINT:
        assert (
            output.splitlines()[-1]
            == "interrupted before the first update: there is nothing to save"
        )
    assert RunFolder(tmp_path / "run").updates() == []
    assert not list((tmp_path / "run").rglob("*tmp*"))


@pytest.mark.slow
@pytest.mark.release
def test_process_1_ends_at_signals_while_it_compiles(wait_until, as_process_1, tmp_path):
    outer = popen([*as_process_1, *command(tmp_path / "run", ["--model", "resnet18"])])
    wait_until((tmp_path / "run" / "config.json").exists, 120, outer)
    (first,) = children(outer.pid)
    os.kill(first, signal.SIGTERM)
    sent = time.monotonic()
    output, _ = outer.communicate(timeout=60)
    assert outer.returncode == 143, output
    assert time.monotonic() - sent < 30
    assert RunFolder(tmp_path / "run").updates() == []


SCRIPT = """
import signal, sys
if sys.argv[2] == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
import numpy, resnet_fn
recipe = resnet_fn.recipes.digits(model="resnet8", image_size=8, batch_size=240, epochs=50)
result = resnet_fn.train(recipe, resnet_fn.RunOptions(out_dir=sys.argv[1], checkpoint_every=1, progress=False))
print("stopped by", result.stopped, "after", result.updates)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "numbers"), [("blocked", "2"), ("open", "2|15")])
def test_ctrl_c_saves_and_the_script_continues(mask, numbers, launcher, all_cpus, tmp_path):
    run = tmp_path / "run"
    process = popen([*all_cpus, sys.executable, "-c", SCRIPT, str(run), mask])
    launcher.wait_for_update(run, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    newest = RunFolder(run).newest().state["update"]
    assert re.search(rf"^stopped by ({numbers}) after {newest}$", output, re.M), output


@pytest.mark.slow
def test_ctrl_c_ends_the_quick_starts_script(launcher, tmp_path):
    """Before its first evaluation, with a checkpoint and without a traceback."""
    page = (Path(__file__).parents[2] / "docs/quickstart.md").read_text()
    script = re.search(r"<!-- run: file mine.py -->\n```python\n(.+?)```", page, re.S)[1]
    run = tmp_path / "run"
    settings = f"epochs=50, eval_every=50, checkpoint_every=1, out_dir={str(run)!r}"
    script = script.replace("epochs=5", settings).replace(', out_dir="runs/fit"', "")
    (tmp_path / "mine.py").write_text(script)
    process = popen([sys.executable, str(tmp_path / "mine.py")])
    launcher.wait_for_update(run, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode in (130, 143), output
    assert "Traceback" not in output


def press_ctrl_c():
    """Send SIGINT to this process, to which it comes when SIGINT is no longer blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_modules_load_ends_the_command(installed):
    for form in (["-m", "resnet_fn.train"], ["-m", "resnet_fn", "train"], [installed, "train"]):
        process = popen([sys.executable, *form, "--epochs", "1"], preexec_fn=press_ctrl_c)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (130, "train: error: interrupted\n")
        assert not os.path.exists("runs")


@pytest.mark.slow
def test_signals_end_runs_with_their_exit_codes(launcher, installed, all_cpus, tmp_path):
    """SIGTERM: 143, SIGINT: 130, SIGHUP: 129, SIGUSR1: 138, SIGUSR2: 140, within the 30 s that a
    pre-emption leaves; the same command goes on.

    On all CPUs, as above. (Two workers: test_launcher.py; the bits: above.)
    """
    folder = tmp_path / "run"
    newest = 0
    uncompiled = ("--mode", "pynative")
    module = ["-m", "resnet_fn.train"]
    forms = (module, [installed, "train"], ["-m", "resnet_fn", "train"], module, module, module)
    codes = ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129))
    codes += ((signal.SIGUSR1, 138), (signal.SIGUSR2, 140), (signal.SIGTERM, 143))
    for form, (number, code) in zip(forms, codes, strict=True):
        process = popen([*all_cpus, *command(folder, uncompiled, form)])
        launcher.wait_for_update(folder, process, newest)
        process.send_signal(number)
        process.send_signal(number)
        sent = time.monotonic()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
        assert time.monotonic() - sent < 30
        assert not newest or f"resuming after update {newest} from " in output
        newest = RunFolder(folder).newest().state["update"]
        assert newest < 30
        again = shlex.join(command(folder, uncompiled, form)[form[0] == installed :])
        assert f"{number.name}: stopping after update {newest}\n" in output
        assert f"\nto go on:\n{again}\n" in output
