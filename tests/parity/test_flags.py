"""The command: the task that its flags describe, functions from files, mistakes, exit codes."""

import dataclasses
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.parity import commands, flags, tasks
from resnet_fn.parity.__main__ import main
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.runtime.user_files import imports_beside, load_function


def plan(arguments=""):
    parser = cli.Parser("parity", "")
    parser.add_argument("--net")
    parser.add_argument("--reference")
    flags.add_task_flags(parser)
    return tasks.plan_asked_for(flags.asked_in(parser.parse(arguments.split())))


def test_the_learning_rate_goes_with_the_batch():
    whole = recipes.recipe("digits")
    use = tasks.ladder_recipe(whole, whole.batch_size // 4, None, {})
    assert (use.batch_size, use.learning_rate) == (whole.batch_size // 4, whole.learning_rate / 4)
    assert use.min_learning_rate == whole.min_learning_rate / 4
    assert tasks.ladder_recipe(whole, 4, 0.5, {}).learning_rate == 0.5
    assert tasks.ladder_recipe(whole, 4, None, {"optimizer": "lamb"}).learning_rate == 1e-3


def test_a_flags_schedule_drops_a_files_floor(raises_line):
    """The recipe's lowest rate is no flag; typed beside a schedule without one, it is a mistake."""
    Path("my.toml").write_text(
        "extends = 'digits'\nschedule = 'cosine'\nmin_learning_rate = 1e-4\n"
    )
    assert min(plan("--recipe my.toml --schedule linear").rates) > 0
    stepped = plan("--recipe my.toml --schedule step --milestones 10").rates
    assert stepped[0] > stepped[-1] > 0
    with raises_line("min_learning_rate: 0.1 needs --schedule cosine or linear"):
        plan("--recipe my.toml --schedule step --milestones 10 --min-lr 0.1")


def test_lines_that_flags_make_useless_are_named(write_recipe, capsys, says):
    recipe = Recipe(optimizer="adamw", nesterov=False, beta2=0.9)
    Path("run.toml").write_text(recipe_text(recipe, RunOptions()))  # as a run writes it
    plan("--recipe run.toml")
    assert capsys.readouterr().err == ""
    plan("--recipe run.toml --optimizer sgd")
    says(capsys.readouterr().err, "warning: run.toml", "left out: beta2")


def test_a_steps_settings_come_from_recipe_and_flags():
    described = plan("--recipe imagenet_resnet50_a3 --image-size 8 --num-classes 7 --ema 0.9")
    a3 = recipes.recipe("imagenet_resnet50_a3")
    optimizer, loss = described.optimizer, described.loss
    assert (optimizer.name, optimizer.weight_decay) == (a3.optimizer, a3.weight_decay)
    assert (loss.name, loss.smoothing) == (a3.loss, a3.label_smoothing)
    assert (described.clip_norm, described.average.decay) == (a3.clip_norm, 0.9)
    images, labels = described.batches[0]
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4, 7))  # mixed: probabilities
    assert labels.sum(1) == pytest.approx(1, rel=1e-6)


@dataclasses.dataclass(frozen=True)
class LongerPlan(Plan):
    """A plan with a setting that other plans lack."""

    noise: float = 0.5


@pytest.mark.parametrize("turned", [False, True])
def test_a_setting_of_one_plan_is_compared(turned):
    """Of two optimizers, each has settings that the other does not read."""
    plans = plan("--optimizer adamw"), LongerPlan(**vars(plan("--learning-rate 0.001")))
    traces = [SimpleNamespace(plan=described) for described in plans[:: -1 if turned else 1]]
    with pytest.raises(ValueError, match="the tasks differ: ") as error:
        commands._check_same_task(*traces)
    text = str(error.value)
    assert ("noise 0.5 and None" if turned else "noise None and 0.5") in text
    assert "optimizer.name" in text
    assert not [name for name in ("nesterov", "beta2") if name in text]


def test_images_fit_the_recipe_or_a_users_net():
    images, labels = plan().batches[0]
    assert (images.shape, labels.dtype, len(plan().batches)) == ((4, 1, 16, 16), np.int32, 5)
    images, labels = plan("--net mine.py:build --reference theirs.py:build").batches[0]
    assert images.shape == (4, 3, 32, 32)
    assert labels.max() < 10


def test_inputs_come_from_a_users_function(raises_line):
    Path("data.py").write_text(
        "import numpy as np\ndef batches():\n    ids = np.arange(6).reshape(2, 3)\n"
        "    return [({'ids': ids, 'mask': ids > 2}, np.ones(2, np.int64))] * 2\ndef wrong():\n    "
        "return 7\n"
    )
    batches = plan("--inputs data.py:batches").batches
    assert (len(batches), batches[0][0]["mask"].dtype) == (2, bool)
    with raises_line("--inputs: data.py:wrong returned int, but it must return a list of (in"):
        plan("--inputs data.py:wrong")


NET = "--reference mine.py:build --net "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--loss a.py:loss",
            "--loss: needs --our-loss FILE:FUNCTION, the same function for MindSpore",
        ),
        (
            "--optimizer a.py:make",
            "--optimizer: needs --our-optimizer FILE:FUNCTION, the same function",
        ),
        ("--inputs a.py:batches", "--inputs: works only with --net and --reference"),
        (
            "--model resnet8 --json nowhere/a.json",
            "--json: 'nowhere/a.json' cannot be written; give a file in a folder that exists",
        ),
        # a folder in which root may write, but no file can be made
        ("--model resnet8 --json /proc/a.json", "--json: '/proc/a.json' cannot be written; give"),
        ("--model resnet8 --report /proc/page", "--report: '/proc/page' cannot be written; give"),
        ("record --model resnet8 --out .", "--out: '.' is not empty; give a new folder"),
        ("record --model resnet8", "--out: needs a folder to write; give --out trace"),
        (
            "record --net a.py:build --reference b.py:build --out x",
            "--net: give either --net or --reference, not both",
        ),
        ("record --like trace --out x", "--like: works only with --net; describe the task"),
        (
            "record --reference a.py:b --mode pynative --device Ascend --out x",
            "--device: works only with --net; a reference runs on the CPU, so leave it out; --mode: ",
        ),
        (
            "record --net a.py:b --small --probes all --out x",
            "--small: holds no probes; leave out --probes all",
        ),
        (
            "record --net a.py:b --like trace --out x --steps 9 --recipe digits --loss bce",
            "--like: the trace already contains a task; leave out --recipe, --steps, --loss",
        ),
        (
            "replay trace --net a.py:build --model resnet8",
            "--net: give either --net or --model, not both",
        ),
        ("--optimizer adan", "optimizer: 'adan' is unknown; "),
        ("--recipe digit", "recipe: 'digit' is unknown; did you mean digits?"),
        ("--batch-size 4 --repeats 3", "repeats: 3 does not divide batch 4"),
        (
            "--inputs a:b --steps 2 --net a --reference b",
            "--steps: --inputs already defines the batches; leave",
        ),
        (
            "--inputs a:b --mixup 0.2 --net a --reference b",
            "--mixup: --inputs already defines the batches; leave",
        ),
        (
            "--steps 0 --accumulate 0",
            "--steps: 0 is too small; give 1 or more; --accumulate: 0 is too small",
        ),
        # A bare name was once ignored, and the package's own net compared instead.
        (
            "--net mine --reference x",
            "--net: 'mine' is not FILE.py:FUNCTION; give for example nets/mine.py:build",
        ),
        (
            "record --reference mine.py --out trace",
            "--reference: 'mine.py' is not FILE.py:FUNCTION; give",
        ),
        (NET + "nowhere.py:build", "--net: there is no file nowhere.py; give FILE.py:FUNCTION"),
        (NET + "mine.txt:build", "--net: 'mine.txt:build' is not FILE.py:FUNCTION; give"),
        (NET + "mine.py:number", "--net: mine.py has no function 'number'"),
        (
            NET + "bad.py:build",
            "--net: bad.py imports a_missing_package, which is not installed; install it, or",
        ),
    ],
)
def test_mistakes_are_named(arguments, message):
    for name in ("mine.py", "mine.txt"):
        Path(name).write_text("number = 7\ndef build(): return None\n")
    Path("bad.py").write_text("import a_missing_package\n")
    with pytest.raises(ValueError) as error:
        main(arguments.split())
    assert str(error.value).startswith(message)
    assert isinstance(error.value, cli.UsageError) == ("bad.py" not in arguments)


@pytest.mark.parametrize("command", ["", "record --out trace "])
def test_without_pytorch_the_extra_is_named(command, monkeypatch, raises_line):
    """As README's first command is typed before PyTorch is there; the file itself has no fault."""
    monkeypatch.setitem(sys.modules, "torch", None)
    Path("theirs.py").write_text("from torch import nn\ndef build(): return nn.Linear(3, 2)\n")
    fix = "pip install '.[torch]'"
    with raises_line("--reference: theirs.py", "torch, which is not installed", fix):
        main(f"{command}--reference theirs.py:build".split())
    with raises_line("needs torch", fix):
        main(f"{command}--model resnet8 --steps 1".split())


def test_command_mistakes_are_one_line(python):
    done = python("-m", "resnet_fn.parity", "--net", "mine.py:build", code=2)
    words = "--net: needs --reference FILE:FUNCTION, the torch module that it was ported from"
    assert done.stderr == f"parity: error: {words}\n"


@pytest.mark.slow
@pytest.mark.release
def test_the_ladder_agrees_on_resnet50(torch, python):
    """(With probes, and more updates: of ResNet-8 in docs/migrating.md and test_replay.py.)"""
    flags = shlex.split("--image-size 64 --batch-size 4 --steps 2 --quick --report new/out")
    done = python("-m", "resnet_fn.parity", "--model", "resnet50", *flags, seconds=900)
    assert "verdict: both compute the same" in done.stdout
    assert done.stdout.endswith("report: new/out/parity.html\n")
    assert "Both compute the same" in Path("new/out/parity.html").read_text()


@pytest.fixture
def _two_folders(tmp_path):
    """Two projects whose files and modules have the same names, beside a third config in the
    working directory.
    """
    for side, scale in (("theirs", 2.0), ("ours", 3.0)):
        (tmp_path / side / "parts").mkdir(parents=True)
        for name in ("config", "parts/__init__", "late", "parts/further"):
            (tmp_path / side / f"{name}.py").write_text(f"SCALE = {scale}\n")
    (tmp_path / "config.py").write_text("SCALE = 7.0\n")


@pytest.mark.usefixtures("_two_folders")
def test_two_files_of_one_name_are_loaded_apart():
    """When they are loaded or later, and from what they append to sys.path; all is left as
    before.
    """
    for side in ("theirs", "ours"):
        Path(side, "net.py").write_text(
            f"import sys\nsys.path.append('{side}/parts')\nfrom config import SCALE\nimport parts\n"
            "def build():\n    import late, further\n    return SCALE, parts.SCALE, late.SCALE, "
            "further.SCALE\n"
        )
    before, places = list(sys.path), {side: f"{side}/net.py:build" for side in ("theirs", "ours")}
    functions = {side: load_function(place, "--net") for side, place in places.items()}
    for side, scale in (("theirs", 2.0), ("ours", 3.0), ("theirs", 2.0)):
        with imports_beside(places[side]):
            assert functions[side]() == (scale,) * 4
    assert sys.path == before
    assert not {"config", "parts", "late", "further"} & set(sys.modules)
    assert load_function("./ours/net.py:build", "--our-loss") is functions["ours"]


@pytest.mark.usefixtures("torch", "device", "_two_folders")
@pytest.mark.parametrize("right", [False, True])
def test_a_compiled_port_reads_its_own_files_constants(capsys, right):
    from small_nets import BATCHES, write_net

    Path("data.py").write_text(BATCHES)
    imports = "import config\nfrom parts import SCALE\nSHIFT = 0.5\n"
    body = "return self.head(x) * SCALE * config.SCALE + SHIFT"
    write_net("theirs/net.py", "torch", "self.head = nn.Linear(8, 3)", body, imports)
    write_net("ours/net.py", "mindspore", "self.head = nn.Dense(8, 3)", body, imports)
    if right:
        for name in ("config.py", "parts/__init__.py"):
            Path("ours", name).write_text("SCALE = 2.0\n")
    words = (
        "--reference theirs/net.py:Net --net ours/net.py:Net --inputs data.py:batches "
        "--no-initialisation --quick"
    )
    assert main(words.split()) == (0 if right else 1)
    assert right or "first stage that differs: eval forward" in capsys.readouterr().out


def test_a_function_that_returns_a_class_is_named():
    message = "^--net: mine.py:build returned the class dict, but it must return a dict$"
    with pytest.raises(ValueError, match=message):
        tasks.returned("--net", "mine.py:build", dict, dict, "a dict")
