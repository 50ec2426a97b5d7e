"""The task that the flags describe: recipe, batches, micro-batches."""

import hashlib
import sys

import numpy as np
import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.user_files import imports_beside, load_function
from resnet_fn.parity import flags
from resnet_fn.parity.__main__ import main
from resnet_fn.parity.trace import Task
from resnet_fn.parity.trace_folder import load_recording


def task(*arguments: str) -> Task:
    parser = cli.Parser("parity", "")
    parser.add_argument("--net")
    parser.add_argument("--reference")
    flags.add_task_flags(parser)
    return flags.task_of(parser.parse(arguments))


def test_the_learning_rate_goes_with_the_batch():
    whole = recipes.recipe("digits")
    use = flags.ladder_recipe(whole, whole.batch_size // 4, None, {})
    assert (use.batch_size, use.learning_rate) == (whole.batch_size // 4, whole.learning_rate / 4)
    assert use.min_learning_rate == whole.min_learning_rate / 4
    assert flags.ladder_recipe(whole, 4, 0.5, {}).learning_rate == 0.5
    assert flags.ladder_recipe(whole, 4, None, {"optimizer": "lamb"}).learning_rate == 1e-3


def test_every_setting_of_a_step_is_the_recipes_or_the_flags():
    described = task("--recipe", "imagenet_resnet50_a3", "--image-size", "8", "--num-classes", "7", "--ema", "0.9")
    a3 = recipes.recipe("imagenet_resnet50_a3")
    for name in ("optimizer", "loss", "weight_decay", "label_threshold", "clip_norm", "mixup", "cutmix", "repeats"):
        assert getattr(described.recipe, name) == getattr(a3, name), name
    assert described.recipe.ema == 0.9
    images, labels = described.batches[0]
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4, 7))  # mixed: probabilities
    assert labels.sum(1) == pytest.approx(1, rel=1e-6)


def test_images_are_those_of_the_recipes_data_set_or_usual_ones_for_a_net_of_ones_own():
    images, labels = task().batches[0]
    assert (images.shape, labels.dtype, len(task().batches)) == ((4, 1, 16, 16), np.int32, 5)
    images, labels = task("--net", "mine.py:build", "--reference", "theirs.py:build").batches[0]
    assert images.shape == (4, 3, 32, 32)
    assert labels.max() < 10


def test_own_inputs(tmp_path):
    (tmp_path / "data.py").write_text(
        "import numpy as np\ndef batches():\n    ids = np.arange(6).reshape(2, 3)\n"
        "    return [({'ids': ids, 'mask': ids > 2}, np.ones(2, np.int64))] * 2\ndef wrong():\n    return 7\n"
    )
    batches = task("--inputs", "data.py:batches").batches
    assert (len(batches), batches[0][0]["mask"].dtype) == (2, bool)
    with pytest.raises(ValueError, match=r"^--inputs: data.py:wrong returned int; return a list of \(inputs, labels"):
        task("--inputs", "data.py:wrong")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "digit"], "recipe: 'digit' is unknown; did you mean digits?"),
        (["--batch-size", "4", "--repeats", "3"], "repeats: 3 does not divide the batch size 4"),
        (["--inputs", "data.py:batches", "--steps", "2"], "--steps: --inputs returns the batches; leave it out"),
        (
            ["--steps", "0", "--accumulate", "0"],
            "--steps: 0 is too small; give 1 or more; --accumulate: 0 is too small",
        ),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(cli.UsageError) as error:
        task(*arguments)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py", "--net: 'mine.py' is not FILE:FUNCTION; give for example nets/mine.py:build"),
        ("nowhere.py:build", "--net: there is no file nowhere.py; give FILE.py:FUNCTION"),
        ("mine.txt:build", "--net: mine.txt is not a Python file; its name must end in .py"),
        ("mine.py:number", "--net: mine.py has no function 'number'"),
        ("bad.py:build", "--net: bad.py cannot be imported (ModuleNotFoundError: No module named 'a_missing_package')"),
    ],
)
def test_a_function_that_is_not_there_is_named(place, message, tmp_path):
    for name in ("mine.py", "mine.txt"):
        (tmp_path / name).write_text("number = 7\n")
    (tmp_path / "bad.py").write_text("import a_missing_package\n")
    with pytest.raises(ValueError) as error:
        load_function(place, "--net")
    assert str(error.value) == message
    assert isinstance(error.value, cli.UsageError) == (not place.startswith("bad"))


def test_a_function_may_import_from_beside_its_file(tmp_path):
    (tmp_path / "beside_the_net.py").write_text("number = 7\n")
    (tmp_path / "mine.py").write_text(
        "import sys\nsys.path.append('more')\nimport beside_the_net, numpy\n"
        "def build():\n    import further\n    return beside_the_net.number + further.number\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "further.py").write_text("number = 1\n")
    before = list(sys.path)
    build = load_function("mine.py:build", "--net")
    with imports_beside("mine.py:build"):
        assert build() == 8
    assert sys.path == before
    assert not {"beside_the_net", "further"} & set(sys.modules)
    assert load_function("./mine.py:build", "--our-loss") is build


@pytest.fixture
def two_folders(tmp_path):
    """Two projects whose files and modules have the same names, beside a third config in the working directory."""
    for side, scale in (("theirs", 2.0), ("ours", 3.0)):
        (tmp_path / side / "parts").mkdir(parents=True)
        (tmp_path / side / "config.py").write_text(f"SCALE = {scale}\n")
        (tmp_path / side / "parts" / "__init__.py").write_text(f"SCALE = {scale}\n")
        (tmp_path / side / "late.py").write_text(f"SCALE = {scale}\n")
    (tmp_path / "config.py").write_text("SCALE = 7.0\n")
    return tmp_path


def test_two_files_of_one_name_are_loaded_apart(two_folders):
    for side in ("theirs", "ours"):
        (two_folders / side / "net.py").write_text(
            "from config import SCALE\nimport parts\nloads = []\nloads.append(1)\n"
            "def build():\n    import late\n    return SCALE, parts.SCALE, late.SCALE\n"
        )
    places = {side: f"{side}/net.py:build" for side in ("theirs", "ours")}
    functions = {side: load_function(place, "--net") for side, place in places.items()}
    for side, scale in (("theirs", 2.0), ("ours", 3.0), ("theirs", 2.0)):
        with imports_beside(places[side]):
            assert functions[side]() == (scale,) * 3


NET = """
from {framework} import nn
{imports}
SHIFT = {shift}


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.head = nn.{dense}(4, 3)

    def {method}(self, x):
        return self.head(x) * SCALE * config.SCALE + SHIFT
"""
DATA = """
import numpy as np


def batches():
    return [(np.ones((4, 4), np.float32), np.arange(4, dtype=np.int32) % 3)]
"""


@pytest.mark.usefixtures("torch", "device")
@pytest.mark.parametrize("right", [False, True])
def test_a_compiled_port_reads_the_constants_of_its_own_files(two_folders, capsys, right):
    imports, shift = "import config\nfrom parts import SCALE", 0.5
    (two_folders / "data.py").write_text(DATA)
    (two_folders / "theirs" / "net.py").write_text(
        NET.format(framework="torch", base="Module", dense="Linear", method="forward", imports=imports, shift=shift)
    )
    port = {"framework": "mindspore", "base": "Cell", "dense": "Dense", "method": "construct"}
    (two_folders / "ours" / "net.py").write_text(NET.format(**port, imports=imports, shift=shift))
    if right:
        for name in ("config.py", "parts/__init__.py"):
            (two_folders / "ours" / name).write_text("SCALE = 2.0\n")
    given = ["--reference", "theirs/net.py:Net", "--net", "ours/net.py:Net", "--inputs", "data.py:batches"]
    assert main([*given, "--no-initialisation", "--quick"]) == (0 if right else 1)
    assert right or "first stage that differs: eval forward" in capsys.readouterr().out


@pytest.mark.usefixtures("torch")
def test_a_trace_contains_the_hash_of_the_references_file(two_folders):
    (two_folders / "data.py").write_text(DATA)
    names = {"framework": "torch", "base": "Module", "dense": "Linear", "method": "forward"}
    file = two_folders / "theirs" / "net.py"
    file.write_text(NET.format(**names, imports="import config\nfrom parts import SCALE", shift=0.5))
    given = ["--reference", "theirs/net.py:Net", "--inputs", "data.py:batches", "--out", "trace", "--probes", "none"]
    assert main(["record", *given]) == 0
    hashed = hashlib.sha256(file.read_bytes()).hexdigest()
    assert load_recording(two_folders / "trace").file == f"net.py, SHA-256 {hashed}"


def test_the_value_that_a_function_returns_is_checked():
    assert flags.returned("--net", "mine.py:build", {}, dict, "a dict") == {}
    for value, words in ((7, "int"), (dict, "the class dict")):
        with pytest.raises(ValueError, match=rf"^--net: mine.py:build returned {words}; return a dict$"):
            flags.returned("--net", "mine.py:build", value, dict, "a dict")
