"""scripts/benchmark: who runs when, the same net on all sides, each with what it would have on its
own.
"""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "benchmark"
sys.path.append(str(SCRIPT))
accuracy, allreduce, interleaving, nets, sides = map(
    importlib.import_module, ("accuracy", "allreduce", "interleave", "nets", "sides")
)

SMALL = {
    "model": "resnet8",
    "stem": "cifar",
    "batch_size": 2,
    "image_size": 8,
    "classes": 2,
    "threads": 1,
}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["dat"], ("'dat'", "data")),
        (["step", "--rounds", "0"], ("--rounds", "0 is too small; give 1 or more")),
        (
            ["step", "--against", "torch,model_trian"],
            ("--against", "'model_trian' is unknown", "model_train"),
        ),
        (["startup", "--net", "resnet18"], ("--net", "'resnet18' is unknown", "resnet18-cifar")),
    ],
)
def test_wrong_flags_are_answered_before_any_work(words, parts, python, says):
    done = python(SCRIPT, *words, code=None)
    says(done.stderr.splitlines()[-1], "error: ", *parts)
    assert done.returncode


def test_benchmarks_of_workers_choose_instructions_like_trainings(monkeypatch):
    """As one process does, beside which they are measured."""
    asked = []
    monkeypatch.setattr(sides.process, "start", lambda *_: None)
    monkeypatch.setattr(sides.instructions, "allow_choice", lambda: asked.append("a command"))
    monkeypatch.setattr(sides.instructions, "choose_for", asked.append)

    def build(spec):
        raise ValueError("enough")

    for module in (allreduce, sides):
        monkeypatch.setattr(module, "build", build)
    for run in (
        lambda: allreduce.measure("resnet8-digits", 1),
        lambda: sides.ours(nets.specification("resnet8-digits", 1)),
    ):
        with pytest.raises(ValueError, match="enough"):
            run()
    assert asked == ["a command", "resnet8"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "flags", "others"),
    [
        ("step", "--net resnet8-digits --rounds 1 --processes 1 --threads 1", "step_seconds"),
        *(
            pytest.param(*part, marks=pytest.mark.release)
            for part in (
                ("startup", "--net resnet8-digits --rounds 1 --threads 1", "seconds"),
                ("data", "--rounds 1 --images 64", ""),
                # 30 % of ten classes: no chance result, and reached after the first epochs of all
                ("time-to-accuracy", "--rounds 1 --target 0.3", "seconds"),
            )
        ),
    ],
)
def test_each_part_measures_both_sides(part, flags, others, python):
    pytest.importorskip("torch")
    python(SCRIPT, part, *flags.split(), "--json", "result.json", seconds=500)
    result = json.loads(Path("result.json").read_text())
    assert result["cpu"]["avx512"] == sides.instructions.this_cpu().has_avx512
    if others:
        rival = "torch" if part == "time-to-accuracy" else "torch_channels_last"
        assert {"ours", rival} <= result[others].keys()
    if part == "step":
        assert min(result["peak_mib"].values()) > 100  # each has imported a whole library
    if part == "data":
        assert {"imagefolder", "mindrecord", "cifar", "cifar, trivialaugment", "torch"} == result[
            "rates"
        ].keys()


def test_an_evaluation_counts_once_its_line_is_whole():
    log = Path("metrics.jsonl")
    assert not accuracy.reached(log, 0.5)
    log.write_text(
        '{"event": "train", "update": 1, "top1": 0.99}\n{"event": "eval", "top1": 0.4}\n'
    )
    assert (accuracy.reached(log, 0.4), accuracy.reached(log, 0.5)) == (True, False)
    log.write_text(log.read_text() + '{"event": "eval", "top1": 0.9')
    assert not accuracy.reached(log, 0.5)
    log.write_text(log.read_text() + "8}\n")
    assert (accuracy.reached(log, 0.98), accuracy.reached(log, 0.981)) == (True, False)


def test_pytorch_accuracy_counts_each_validation_image_once():
    """Of a net that always answers three: the proportion of threes."""
    torch = pytest.importorskip("torch")
    digits = open_dataset(recipe("digits"))
    labels = np.asarray(digits.test.labels)

    class AlwaysThree(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            assert images.shape == (len(labels), 1, 16, 16)
            return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float()

    assert accuracy.torch_top1(AlwaysThree(), digits) == pytest.approx((labels == 3).mean())


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["genet50_plus-224", "resnet8-digits"])
def test_both_sides_build_the_net_of_the_name(name):
    """What they compute: tests/parity/reference/test_nets.py; how many weights they have:
    tests/models.
    """
    pytest.importorskip("torch")
    spec = nets.specification(name, threads=1)
    ours = sorted(parameter.shape for parameter in nets.build(spec).trainable_params())
    theirs = sorted(tuple(parameter.shape) for parameter in sides.torch_net(spec).parameters())
    assert ours == theirs


def test_rounds_alternate_and_ratios_are_per_round():
    order = []
    seconds = {"ours": [[1.0, 9.0, 2.0], [3.0]], "torch": [[5.0, 7.0], [9.0, 9.0]]}
    runs = {
        name: lambda steps, name=name: order.append((name, steps)) or seconds[name].pop(0)
        for name in seconds
    }
    medians = interleaving.interleave(runs, rounds=2, steps=3)
    assert medians == {"ours": [2.0, 3.0], "torch": [6.0, 9.0]}
    assert order == [("ours", 3), ("torch", 3), ("torch", 3), ("ours", 3)]
    ratios = interleaving.ratios({"ours": [1.0, 2.0, 4.0], "torch": [2.0, 3.0, 4.0]})
    assert ratios == {"torch": {"median": 1.5, "min": 1.0, "max": 2.0}}


def test_a_side_that_cannot_run_says_why():
    with pytest.raises(ValueError, match=r"ours: cannot run here \(KeyError: 'threads'\)"):
        interleaving.Side("ours", {})


def test_pytorch_may_use_all_of_the_machines_instructions(monkeypatch, python):
    """The cap on oneDNN that MindSpore needs is not PyTorch's, which brings a oneDNN of its own."""
    pytest.importorskip("torch")
    code = "import torch; torch.nn.Conv2d(16, 16, 3)(torch.ones(64, 16, 16, 16))"
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    alone = python("-c", code, without="ONEDNN_MAX_CPU_ISA").stdout
    with interleaving.Side("torch_channels_last", SMALL) as side:
        compared = "".join(side.log)
    # "acdb" is NHWC; a batch of channels last that became NCHW on its way would be "abcd".
    convolutions = [line for line in side.log if ",convolution," in line and "forward" in line]
    assert convolutions
    assert all("acdb" in line for line in convolutions)
    isa = re.compile(".*info,cpu,isa:.*")
    assert isa.findall(alone) == isa.findall(compared) != []


def test_peak_memory_is_the_programs_own(python):
    """In bytes: 300 MB that are freed again count, 600 MB of the process that starts it do not."""
    held = np.ones(75_000_000)
    code = (
        "import numpy, sides; before = sides.peak_memory(); numpy.ones(37_500_000); "
        "print(before, sides.peak_memory())"
    )
    path = os.pathsep.join([str(SCRIPT), str(SCRIPT.parents[1])])
    before, after = map(int, python("-c", code, PYTHONPATH=path).stdout.split())
    assert before < 200e6 < held.nbytes
    assert 290e6 < after - before < 310e6


def test_the_loader_to_compare_with_gives_torchvisions_pixels(torchvision, folder):
    """The same random numbers from the same seed, so the same crops: it does neither more nor
    less.
    """
    import torch

    from dataloader import photograph
    from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD

    transforms = torchvision.transforms
    pil_loader = torchvision.datasets.folder.pil_loader
    steps = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    whole = transforms.Compose([*steps, transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    for path in sorted((folder / "train").rglob("*.JPEG"))[:3]:
        for seed in range(16):
            torch.manual_seed(seed)
            ours = photograph(path)
            torch.manual_seed(seed)
            assert torch.equal(ours, whole(pil_loader(path)))
