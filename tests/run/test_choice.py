"""The choice of instructions is a condition of a checkpoint, and a resumed run keeps it.

(Workers that choose differently: test_agreement.)
"""

import shlex
import shutil
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train as train_run
from resnet_fn.runtime import instructions
from resnet_fn.runtime.process import REASON
from resnet_fn.runtime.versions import at_least

pytestmark = pytest.mark.usefixtures("device")

DRIVER = Path(__file__).parent / "drivers" / "choosing.py"
SMALL = shlex.split(
    "--model resnet8 --image-size 8 --dataset synthetic --epochs 1 --synthetic-samples 32 "
    "--batch-size 16 --no-progress --threads 1"
)


def conditions(run):
    layout = RunFolder(Path(run)).newest().state["parallel_layout"]
    return layout["convolutions"], layout["ONEDNN_MAX_CPU_ISA"], layout[REASON]


@pytest.mark.parametrize(
    ("model", "mode", "name"),
    [
        ("resnet8", "graph", "resnet8"),
        ("resnet8", "pynative", ""),
        ("se_resnet18", "graph", "se_resnet18"),
        ("resnext50_32x4d", "graph", ""),  # groups
    ],
)
def test_only_compiled_nets_without_groups_may_become_products(model, mode, name, monkeypatch):
    def choose_for(net, before):
        assert (net, before) == (name, None)
        raise ValueError("enough")

    monkeypatch.setattr(instructions, "choose_for", choose_for)
    settings = Recipe(model=model, dataset="synthetic", synthetic_samples=32, batch_size=16)
    with pytest.raises(ValueError, match="enough"):
        train_run(settings, RunOptions(mode=mode, out_dir="run"))


@pytest.fixture
def train(python):
    if not at_least(2, 9):
        pytest.skip("an older MindSpore needs no limit")

    def run(table, *flags, **variables):
        words = DRIVER, table, *SMALL, *flags
        done = python(*words, without="ONEDNN_", seconds=600, **variables)
        return " ".join(done.stdout.split())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("table", ["yes", pytest.param("no", marks=pytest.mark.release)])
def test_a_resume_keeps_its_checkpoints_choice(table, train):
    train(table, "--out-dir", "run", "--checkpoint-every", "1")
    kept = conditions("run")
    assert kept[:2] == (("products", "not set") if table == "yes" else ("standard", "AVX2"))
    last = RunFolder(Path("run")).newest()
    shutil.rmtree(last.path)  # two updates; the run goes on from the first one
    output = train({"yes": "no", "no": "yes"}[table], "--resume", "run")
    assert "instead of" not in output
    assert conditions("run") == kept
    weights = RunFolder(Path("run")).newest().weights
    assert all((weights[name] == value).all() for name, value in last.weights.items())


@pytest.mark.slow
@pytest.mark.release
def test_notes_name_another_choice_after_a_resume(train):
    """A typed limit wins, and what is not compiled cannot be products."""
    train("yes", "--out-dir", "run", "--checkpoint-every", "1")
    shutil.rmtree(RunFolder(Path("run")).newest().path)
    shutil.copytree("run", "pynative")
    variables = {"ONEDNN_MAX_CPU_ISA": "AVX2", instructions.IS_DEFAULT: ""}
    limited = train("yes", "--resume", "run", **variables)
    eager = train("yes", "--resume", "pynative", "--mode", "pynative")
    for output in (limited, eager):
        assert "resuming with convolutions standard instead of products" in output
        assert "resuming with ONEDNN_MAX_CPU_ISA AVX2 instead of not set" in output
    assert conditions("run") == ("standard", "AVX2", "ONEDNN_MAX_CPU_ISA is AVX2")
    assert conditions("pynative")[:2] == ("standard", "AVX2")
