"""The command: exit codes, JSON, page, errors, and the ladder's line."""

import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.parity.inputs.command import inputs
from resnet_fn.parity.inputs.pictures import make_pictures
from resnet_fn.parity.inputs.stored import line_of

SIDE = """
import numpy as np
from PIL import Image

def pixels(path):
    with Image.open(path) as image:
        small = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    return np.asarray(small, np.float32).transpose(2, 0, 1) / 255

def read(path):
    return pixels(path)

def reversed_channels(path):
    return pixels(path)[::-1]

def flipped(path):
    x = pixels(path)
    return x[..., ::-1] if np.random.random() < 0.5 else x

def fails(path):
    raise RuntimeError("no such thing")

def not_gif(path):
    if path.endswith(".gif"):
        raise ValueError("an animation")
    return pixels(path)

def text(path):
    return "picture"

def two(path, other):
    return pixels(path)

def batched_twice(path):
    return pixels(path).astype(np.float64)

constant = 3
"""


@pytest.fixture(autouse=True)
def side():
    Path("side.py").write_text(SIDE)


def run(port, *more, reference="read"):
    return inputs(["--reference", f"side.py:{reference}", "--net", f"side.py:{port}", *more])


def test_equal_sides_exit_with_0(capsys):
    assert run("read") == 0
    printed = capsys.readouterr().out
    assert "verdict: both prepare the same, 12 of 12 pictures, no labels" in printed
    assert "first stage" not in printed


def test_a_difference_exits_with_1_and_its_cause(capsys):
    assert run("reversed_channels", "--json", "out.json", "--report", "page") == 1
    printed = capsys.readouterr().out
    assert "first stage that differs: pixels, worst in" in printed
    assert "channels: BGR in the port, RGB in the reference" in printed
    content = json.loads(Path("out.json").read_text())
    assert (content["format"], content["version"]) == ("resnet_fn parity inputs", 1)
    assert content["agrees"] is False
    assert content["first_stage"] == "pixels"
    assert content["first_picture"] == "10/alpha.png"
    assert "BGR in the port" in str(content["causes"])
    assert len(content["pictures"]) == 12
    assert content["preparations"]["reference"]["kind"] == "squashed"
    page = Path("page/inputs.html").read_text()
    assert "They differ" in page
    assert "BGR in the port" in page


def test_the_reference_line_of_a_cause_is_named(capsys):
    Path("other.py").write_text(SIDE.replace("BILINEAR", "BICUBIC"))
    inputs(["--reference", "side.py:read", "--net", "other.py:read"])
    number = SIDE.partition("resize")[0].count("\n") + 1
    assert f"  side.py:{number}: filter: bicubic in the port" in capsys.readouterr().out


@pytest.mark.parametrize("random", [False, True])
def test_other_parts_of_samples_are_not_compared(random, capsys):
    """Masks differ, and the verdict does not include them, in the ladder's line, too."""
    np.random.seed(0)
    Path("masks.py").write_text(
        f"{SIDE}\ndef masked(path):\n    x = {'flipped' if random else 'pixels'}(path)\n"
        "    return {'image': x, 'mask': x[0] > np.random.random()}\n"
    )
    side = "masks.py:masked"
    flags = ["--reference", side, "--net", side, "--json", "out.json", "--report", "page"]
    assert inputs([*flags, "--draws", "60"]) == 0
    assert "\nnot compared: mask\n" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["not_compared"] == ["mask"]
    assert line_of("out.json").endswith("; not compared: mask")
    assert "not compared: mask" in Path("page/inputs.html").read_text()


def test_an_unread_awkward_picture_is_named(capsys):
    assert run("not_gif", "--json", "out.json") == 0
    printed = capsys.readouterr().out
    assert "both prepare the same, 11 of 12 pictures" in printed
    assert "not read by the port: ant/animated.gif (several frames): ValueError: an anim" in printed
    assert "no picture with several frames" in printed


def test_an_unread_picture_of_the_folder_is_undecided(capsys):
    make_pictures("photos")
    assert run("not_gif", "photos") == 3
    assert "undecided" in capsys.readouterr().out


def test_kinds_that_a_folder_lacks_are_listed(capsys):
    make_pictures("photos")
    for path in Path("photos").rglob("*.png"):
        path.unlink()
    assert run("read", "photos") == 0
    printed = capsys.readouterr().out
    assert "5 of 5 pictures in photos" in printed
    assert "no picture with transparency" in printed


def test_settings_alone_are_an_error_with_strict(capsys):
    assert run("batched_twice") == 0
    assert "but some settings differ" in capsys.readouterr().out
    assert run("batched_twice", "--strict") == 1


def test_random_sides_are_compared_in_law(capsys):
    np.random.seed(0)
    assert run("flipped", "--draws", "200", reference="flipped") == 0
    printed = capsys.readouterr().out
    assert "augmentation in law, by 200 draws" in printed
    assert "pixels: random, so they are compared in law alone" in printed


def test_options_without_effect_are_told(capsys):
    make_pictures("photos")
    assert run("read", "photos", "--draws", "100", "--seed", "1", "--pictures", "20") == 0
    printed = capsys.readouterr().out
    assert "--draws: no effect, because no side is random" in printed
    assert "--seed: no effect, because no side is a data loader of PyTorch" in printed
    assert run("read") == 0
    assert "no effect" not in capsys.readouterr().out


def test_the_seed_of_a_loader_has_an_effect(torch, capsys):
    Path("loader.py").write_text(
        SIDE + "\nimport torch\nfrom pathlib import Path\n"
        "class Files(torch.utils.data.Dataset):\n"
        "    def __init__(self, root):\n"
        "        self.samples = sorted(str(path) for path in Path(root).rglob('*.*'))\n"
        "    def __len__(self):\n        return len(self.samples)\n"
        "    def __getitem__(self, index):\n        return pixels(self.samples[index])\n"
        "def load(root):\n    return torch.utils.data.DataLoader(Files(root), shuffle=True)\n"
    )
    assert inputs(["--reference", "side.py:read", "--net", "loader.py:load", "--seed", "1"]) == 0
    assert "no effect" not in capsys.readouterr().out


def test_one_random_side_differs(capsys):
    np.random.seed(0)
    assert run("flipped") == 1
    assert "random in the port, the same in each draw of the reference" in capsys.readouterr().out


def test_random_and_a_data_set_read_once(capsys):
    """Whether the data set of MindSpore is random, one pass does not show."""
    Path("sets.py").write_text(
        "import mindspore.dataset as ds\nimport mindspore.dataset.vision as vision\n"
        "def port(root):\n"
        "    steps = [vision.Resize((32, 32)), vision.RandomHorizontalFlip(), vision.ToTensor()]\n"
        "    return ds.ImageFolderDataset(root, decode=True, shuffle=False).map(steps, 'image')\n"
    )
    make_pictures("photos")
    for path in [*Path("photos").rglob("*.gif"), *Path("photos").rglob("bits16.png")]:
        path.unlink()
    np.random.seed(0)
    assert inputs(["--reference", "side.py:flipped", "--net", "sets.py:port", "photos"]) == 3
    assert "a data set reads its own pictures only; give its" in capsys.readouterr().out


def test_labels_of_a_folder_are_compared(capsys):
    Path("labels.py").write_text(
        SIDE + "\nimport pathlib\ndef label(path):\n"
        "    return pixels(path), ['10', '2', 'Zebra', 'ant'].index(pathlib.Path(path).parent.name)\n"
        "def other(path):\n    x, y = label(path)\n    return x, y + 1\n"
    )
    assert inputs(["--reference", "labels.py:label", "--net", "labels.py:other"]) == 1
    assert "first stage that differs: labels" in (printed := capsys.readouterr().out)
    assert "an offset: each index is 1 more in the port" in printed


def test_the_packages_own_pixels_are_a_side(capsys):
    Path("own.py").write_text(
        "import pathlib\nimport numpy as np\nfrom resnet_fn.data.preprocess import eval_pixels\n"
        "M, S = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])\n"
        "def read(path):\n"
        "    x = eval_pixels(pathlib.Path(path).read_bytes(), 256, 224)\n"
        "    return ((np.float32(x) / np.float32(255) - M) / S).transpose(2, 0, 1)\n"
    )
    assert inputs(["--reference", "own.py:read", "--recipe", "imagenet_resnet50_v1"]) == 0
    assert "12 of 12 pictures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("port", "parts"),
    [
        ("fails", ("--net", "side.py:fails", "no such thing", "correct the function")),
        ("text", ("--net", "side.py:text", "numbers", "correct the function")),
        ("two", ("--net", "side.py:two", "path, other", "give a function of a picture's path")),
        ("constant", ("--net", "side.py:constant", "int", "give a function")),
    ],
)
def test_functions_that_cannot_be_used_are_errors(port, parts, raises_line):
    with raises_line(*parts):
        run(port)


EQUAL = "--net side.py:read --reference side.py:read"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--net side.py:read", ("--reference", "give --reference and --net")),
        ("--net a.py:f --reference side.py:read", ("--net", "a.py", "FILE.py")),
        ("--net side.py:nobody --reference side.py:read", ("--net", "nobody", "give")),
        ("--net side.py:read --recipe digits", ("--recipe", "digits", "give one of")),
        (f"{EQUAL} nowhere", ("FOLDER", "nowhere", "give a folder")),
        (f"{EQUAL} --pictures 0", ("--pictures", "0", "give 1")),
        (f"{EQUAL} --pictures 3", ("--pictures", "FOLDER's", "give FOLDER")),
    ],
)
def test_wrong_usage_is_an_error(arguments, parts, raises_line):
    with raises_line(*parts, kind=UsageError):
        inputs(arguments.split())


def test_an_empty_folder_is_an_error(raises_line):
    Path("empty").mkdir()
    with raises_line("FOLDER", "empty", "give a folder of pictures"):
        run("read", "empty")


def test_the_ladder_names_the_comparison_of_inputs(raises_line):
    assert run("reversed_channels", "--json", "out.json") == 1
    line = line_of("out.json")
    assert line.startswith("inputs: compared by parity inputs (side.py:reversed_channels against")
    assert line.endswith("they differ, first in pixels")
    Path("other.json").write_text("{}")
    for name in ("other.json", "none.json"):
        with raises_line("--inputs-verdict", name, "give the file", kind=UsageError):
            line_of(name)
