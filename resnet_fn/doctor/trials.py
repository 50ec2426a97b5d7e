"""The checks of the acceptance kit: each runs commands of the package, and has what they wrote judged."""

import importlib.util
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.doctor import judges
from resnet_fn.doctor.commands import Commands
from resnet_fn.doctor.golden import JUDGED, judge_losses
from resnet_fn.doctor.judges import FIRST, HALF, LATER, Answer
from resnet_fn.telemetry import read_log

_HERE = Path(__file__).parent
_DIGITS = "../golden/digits"  # the run of the check "golden"
_SMALL = ("--model", "resnet8", "--image-size", "8", "--no-progress")
_TOP = 2.0**24  # the largest loss scale: 0.8 · 2^24 / 64 is beyond float16's 65,504, and so is half of it


class NotTriedError(Exception):
    """A check that cannot be done here, and why."""


class Trial(NamedTuple):
    """A check: its name, what does it, what is compared by which bound, and what the answer means for a user."""

    name: str
    run: Callable[[Commands], Answer]
    judged: str
    means: str


def events(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """What a run has logged."""
    return [event for event in read_log(run / "metrics.jsonl") if event["event"] == kind]


def doctor(commands: Commands) -> Answer:
    """The short checks."""
    file = commands.out / "doctor.json"
    code = commands.run("doctor", "--json", str(file), codes=(0, 1))
    if not file.exists():
        raise ValueError(commands.last_error().removeprefix("doctor: error: "))
    told = json.loads(file.read_text())
    count = len(told["findings"])
    found = f"broken: {', '.join(told['broken'])}" if told["broken"] else f"all {count} checks ok"
    return Answer(code == 0 and not told["broken"], f"{found} (doctor.json)")


def ladder(commands: Commands) -> Answer:
    """The carried trace of PyTorch, replayed."""
    file = commands.out / "ladder.json"
    words = ("replay", str(_HERE / "trace"), "--net", f"{_HERE / 'small_net.py'}:build", "--json", str(file))
    commands.run("parity", *words, codes=(0, 1))
    if not file.exists():
        return Answer(False, commands.last_error())
    return judges.ladder(json.loads(file.read_text()))


def golden(commands: Commands) -> Answer:
    """The digits recipe, whole."""
    commands.run("train", "--out-dir", "digits", "--no-progress")
    run = commands.folder / "digits"
    last, seconds = events(run, "eval")[-1], [event["step_seconds"] for event in events(run)]
    ok, found = judge_losses([event["loss"] for event in events(run)])
    numbers = {"top1": last["top1"], "step_seconds": statistics.median(seconds), "first_step_seconds": seconds[0]}
    return Answer(ok, f"{found}; top-1 {last['top1']:.2%}", numbers)


def _digits(commands: Commands) -> Path:
    run = commands.folder / _DIGITS
    if not RunFolder(run).updates():
        raise NotTriedError("there is no run of the digits to do it with")
    return run


def evaluation(commands: Commands) -> Answer:
    """One net scored as training did, in other parts, and on several workers."""
    expected = events(_digits(commands), "eval")[-1]
    ways = {"batches of 256": ("--batch-size", "256"), "batches of 77": ("--batch-size", "77")}
    results = {}
    for way, words in ways.items():
        commands.run("evaluate", _DIGITS, "--json", "result.json", *words)
        results[way] = json.loads((commands.folder / "result.json").read_text())
    if commands.workers > 1:
        commands.launch("evaluate", _DIGITS, "--json", "result.json")
        results[f"{commands.workers} workers"] = json.loads((commands.folder / "result.json").read_text())
    answer = judges.scores(expected, results)
    alone = "; several workers not tried: --workers 1" if commands.workers == 1 else ""
    return answer._replace(found=answer.found + alone)


def workers(commands: Commands) -> Answer:
    """A net without BatchNorm on one worker and on several."""
    return judges.workers(*_on_one_and_several(commands, "--norm", "none"))


def batchnorm(commands: Commands) -> Answer:
    """BatchNorm over all workers: on one and on several."""
    return judges.workers(*_on_one_and_several(commands, "--sync-batchnorm"))


def _on_one_and_several(commands: Commands, *words: str) -> list[list[dict[str, Any]]]:
    count = commands.workers
    if count == 1:
        raise NotTriedError("--workers 1")
    words = (*_SMALL, *words, "--batch-size", str(-(-240 // count) * count), "--epochs", "1")
    commands.run("train", *words, "--out-dir", "one")
    commands.launch("train", *words, "--out-dir", "several")
    return [events(commands.folder / run) for run in ("several", "one")]


def overflow(commands: Commands) -> Answer:
    """Float16 from a loss scale that must overflow."""
    words = ("--precision", "fp16", "--loss-scale", f"{_TOP:.0f}", "--epochs", "1", "--checkpoint-every", "1")
    commands.run("train", *words, "--keep-last", "99", "--out-dir", "half", "--no-progress")
    run = commands.folder / "half"
    saved = [load_checkpoint(RunFolder(run).step(update)).weights for update in RunFolder(run).updates()]
    weights = [{name: array.tobytes() for name, array in arrays.items()} for arrays in saved]
    return judges.overflow(events(run), [a != b for a, b in itertools.pairwise(weights)])


def resume(commands: Commands) -> Answer:
    """A run that is killed, and goes on."""
    words = (*_SMALL, "--batch-size", "120", "--epochs", "8", "--checkpoint-every", "1")
    commands.run("train", *words, "--out-dir", "unbroken")
    at = commands.train_and_kill("killed", 3, *words)
    commands.run("train", *words, "--out-dir", "killed")
    ends = [RunFolder(commands.folder / run).newest() for run in ("killed", "unbroken")]
    states = [{**end.weights, **end.training} for end in ends]
    return judges.resume(at, [end.state["update"] for end in ends], *states)


def export(commands: Commands) -> Answer:
    """The digits' net as a file, which the command itself compares with the net."""
    _digits(commands)
    found, numbers = [], {}
    for kind in ("mindir", "onnx"):
        if kind == "onnx" and not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")):
            found.append("onnx not tried: resnet_fn[export] is not installed")
            continue
        commands.run("export", _DIGITS, "--format", kind, "--out", f"digits.{kind}")
        verified = json.loads((commands.folder / f"digits.{kind}.json").read_text())["verified"]
        numbers[kind] = verified
        found.append(f"{kind} {verified['largest_difference']:.1g} of {verified['tolerance']:.1g} allowed")
    return Answer(True, ", ".join(found), numbers)


def speed(commands: Commands) -> Answer:
    """ResNet-50 on JPEGs of ImageNet's size."""
    from resnet_fn.data.sources.bundled import write_folder

    card = commands.device != "CPU"
    batch, updates, precision = (64, 16, "fp16") if card else (8, 11, "fp32")
    write_folder(commands.folder / "photographs", batch * updates)
    words = ["--recipe", "imagenet_resnet50_v1", "--data-dir", "photographs", "--batch-size", str(batch)]
    words += ["--learning-rate", "0.01", "--epochs", "1", "--precision", precision, "--out-dir", "resnet50"]
    commands.run("train", *words, "--no-progress")
    return judges.speed(events(commands.folder / "resnet50"), updates, batch, precision)


_AS_ONE = f"loss and gradient norm of update 1 within {FIRST:g} of one worker's, the next four losses {LATER:g}"
TRIALS = (
    Trial("doctor", doctor, "each of its checks has its own", "MindSpore, device and disk do what training needs"),
    Trial(
        "ladder",
        ladder,
        "outputs and loss 1e-5, gradients 1e-4 and so on, or 4 x PyTorch's own rounding (docs/migrating.md)",
        "a net and its update compute what PyTorch computes; else ladder.json names where it starts",
    ),
    Trial("golden", golden, JUDGED, "a whole training goes as it should; else accuracy is lost"),
    Trial(
        "evaluation",
        evaluation,
        "the same bits in one worker, in parts and in several workers as in training",
        "each image counts once, however it is scored; else results depend on the machine",
    ),
    Trial("workers", workers, _AS_ONE, "several workers train what one trains; else they train something else"),
    Trial("batchnorm", batchnorm, _AS_ONE, "--sync-batchnorm sees all workers' samples; else leave it out"),
    Trial(
        "overflow",
        overflow,
        f"skipped updates halve the scale and change no byte of the weights; first loss within {HALF:g} of float32's",
        "--precision fp16 is safe; else overflow gets into the weights",
    ),
    Trial(
        "resume",
        resume,
        "after kill -9, weights and optimizer end with the unbroken run's bits",
        "a run that is stopped goes on as if it had not been; else kernels do not repeat",
    ),
    Trial("export", export, "the file's logits, as the command allows", "the file answers as the net does"),
    Trial(
        "speed",
        speed,
        "all updates are done, with finite losses; the speed is told, not judged",
        "a share above 10 % means that decoding is the limit: pack the images (docs/data.md)",
    ),
)
