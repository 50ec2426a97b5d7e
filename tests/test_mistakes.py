"""What a first-time user of the recipe finetune gets wrong: each is one line, before anything is trained or written."""

import dataclasses
import importlib.util
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.config import cli
from resnet_fn.config.fields import to_dict
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.models import create_model
from resnet_fn.train import main, parse
from resnet_fn.weights.files import write_arrays

COMMAND = ["--recipe", "finetune", "--data-dir", "photographs", "--weights", "net.safetensors", "--batch-size", "4"]
LISTS = ["--train-list", "train.txt", "--val-list", "val.txt"]
BEE, CAT = "train/bee/00 ü.JPEG", "train/cat with a space/00 ü.JPEG"
BEES = f"printf '{BEE}\\tbee\\n{CAT}\\tcat\\n' > train.txt; "
LAYOUT = (
    "lay the images out as train/CLASS/*.JPEG and val/CLASS/*.JPEG (ImageNet: https://image-net.org/download), "
    "or give --validation-share 0.2 to split one folder"
)
SYNTAX = "text stands in quotes, yes and no are true and false, several numbers are [1, 2]"
toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")
torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="reading .pth needs torch")


@pytest.fixture(scope="module")
def nets(device, tmp_path_factory):
    """Weight files: of a small net, with another stem, of grey pictures, and of no ResNet."""
    place = tmp_path_factory.mktemp("nets")
    for name, options in (("net", {}), ("stem", {"stem": "imagenet"}), ("grey", {"in_channels": 1})):
        net = create_model("resnet8", num_classes=3, **options)
        write_arrays(place / f"{name}.safetensors", {p.name: p.asnumpy() for p in net.get_parameters()})
    write_arrays(place / "vgg.safetensors", {"features.0.weight": np.zeros((64, 3, 3, 3), np.float32)})
    return place


@pytest.fixture
def refused(folder, nets, monkeypatch, capsys):
    """refused(*flags) runs the command with these flags more; returns its exit code and what stderr got."""
    shutil.copytree(nets, ".", dirs_exist_ok=True)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # a command that trains puts others in their place

    def run(*flags):
        with pytest.raises(SystemExit) as caught:
            cli.run("train", main, [*COMMAND, *flags])
        shown = capsys.readouterr()
        assert shown.out == ""
        assert not Path("runs").exists()
        return caught.value.code, shown.err

    yield run
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def mistake(name, before, flags, message, code=1, marks=()):
    return pytest.param(before, flags.split("|") if flags else [], code, message, id=name, marks=marks)


# name, what a shell does before, flags in addition to COMMAND, the message, the exit code
DATA = [
    mistake(
        "the folder around the set",
        "mkdir outer; mv photographs outer",
        "--data-dir|outer",
        "data_dir: outer/photographs holds no images; it holds the folders train, val: "
        "give --data-dir outer/photographs",
    ),
    mistake(
        "the folder around the set, nothing split off",
        "mkdir outer; mv photographs outer",
        "--data-dir|outer|--validation-share|0",
        "data_dir: looked for train/ and val/ in 'outer', found photographs; give --data-dir outer/photographs",
    ),
    mistake(
        "the folder of one class",
        "",
        "--data-dir|photographs/train/bee",
        "data_dir: photographs/train/bee holds images and no folders; if they are of one class, give the folder around "
        "it: --data-dir photographs",
    ),
    mistake(
        "one class only",
        "rm -r photographs/val photographs/train/[bc]*",
        "",
        "data_dir: photographs/train holds one class only, 'éléphant'; lay the images out with a folder for each "
        "class, and give the folder around them",
    ),
    mistake(
        "an empty class",
        "mkdir photographs/train/zebra",
        "",
        "data_dir: photographs/train/zebra holds no images; remove the folder or fill it (it would count as a class)",
    ),
    mistake(
        "a class of val alone",
        "mv photographs/val/bee photographs/val/bees",
        "",
        "data_dir: photographs/val/bees is not a class of train; use one of bee, cat with a space, éléphant",
    ),
    mistake("no folder", "", "--data-dir|", "data_dir: the set imagefolder needs one; give --data-dir FOLDER"),
    mistake(
        "a misspelt folder",
        "",
        "--data-dir|photograph",
        "data_dir: 'photograph' does not exist; did you mean photographs?",
    ),
    mistake(
        "the archive",
        "touch photographs.zip",
        "--data-dir|photographs.zip",
        "data_dir: 'photographs.zip' is a file; give the folder that it unpacks to",
    ),
    mistake(
        "nothing that validates",
        "rm -r photographs/val",
        "--validation-share|0",
        f"data_dir: looked for train/ and val/ in 'photographs', found train; {LAYOUT}",
    ),
    mistake(
        "more than all validates", "", "--validation-share|1.5", "validation_share: 1.5 is not in [0, 1); give 0.2", 2
    ),
    mistake(
        "an update of more than there are",
        "",
        "--batch-size|32",
        "batch_size: 32 is larger than the training set of 21; give at most 21",
    ),
    mistake(
        "an empty file",
        f": > 'photographs/{BEE}'",
        "",
        f"on_bad_sample: 1 of 21 training files are bad: 'photographs/{BEE}' is empty; "
        "fix them, or give --on-bad-sample skip",
    ),
    mistake("one list alone", "", "--train-list|train.txt", "train_list: 'train.txt' needs --val-list FILE too", 2),
    mistake(
        "a list with a missing file",
        BEES + "cp train.txt val.txt; printf 'train/no.jpg\\tbee\\n' >> train.txt",
        "|".join(LISTS),
        "on_bad_sample: 1 of 3 training files are bad: 'photographs/train/no.jpg' is missing; "
        "fix them, or give --on-bad-sample skip",
    ),
    mistake(
        "lists of another folder",
        "echo bee/1.jpg bee > train.txt",
        "|".join(LISTS),
        "train.txt line 1: photographs/bee/1.jpg does not exist, nor do others; paths are relative to --data-dir: "
        "give the folder that they begin at",
    ),
    mistake(
        "a list without classes",
        "echo train/bee/1.jpg > train.txt",
        "|".join(LISTS),
        "train.txt line 1: 'train/bee/1.jpg' has no class; write PATH CLASS",
    ),
    mistake(
        "a CSV without the column",
        "printf 'path,kind\\ntrain/bee/1.jpg,bee\\n' > train.csv",
        "--train-list|train.csv|--val-list|val.txt",
        "train.csv line 1: no column for the class among path, kind; call one label or class or labels or classes",
    ),
    mistake(
        "a class of the validation list alone",
        BEES + f"printf '{BEE}\\twasp\\n' > val.txt",
        "|".join(LISTS),
        "val.txt line 1: 'wasp' is not a class of train.txt; use one of bee, cat",
    ),
]
WEIGHTS = [
    mistake(
        "misspelt weights",
        "",
        "--weights|net.safetensor",
        "weights: net.safetensor: does not exist; "
        "did you mean net.safetensors or stem.safetensors or grey.safetensors?",
    ),
    mistake(
        "weights that are a text",
        "echo > notes.txt",
        "--weights|notes.txt",
        "weights: notes.txt: is no weight file; give .safetensors, .ckpt, .pth, .pt or a checkpoint folder",
    ),
    mistake(
        "weights that are a web page",
        "echo '<html>not found</html>' > page.pth",
        "--weights|page.pth",
        "weights: page.pth: holds more than tensors (code could run if it were loaded), or is damaged; "
        "save net.state_dict() and give that",
        marks=torch,
    ),
    mistake(
        "weights of no ResNet",
        "",
        "--weights|vgg.safetensors",
        "weights: vgg.safetensors: names such as features.0.weight are of no known ResNet; "
        "known are ours, torchvision, mindcv, official; give other weights",
    ),
    mistake(
        "weights of another net",
        "",
        "--model|resnet20",
        "weights: net.safetensors holds a resnet8, the net is a resnet20; give --model resnet8",
    ),
    mistake(
        "weights of another stem",
        "",
        "--weights|stem.safetensors|--model|resnet8",
        "weights: stem.safetensors has the stem 'imagenet', the net 'cifar'; give --stem imagenet",
    ),
    mistake(
        "weights of grey pictures",
        "",
        "--weights|grey.safetensors",
        "weights: grey.safetensors is for images of 1 channel, the data set's have 3; give other weights",
    ),
    mistake("no weights", "", "--weights|", "model: is told by the weights; give --weights FILE, or --model NAME"),
]
SETTINGS = [
    mistake(
        "a part that is not there",
        "",
        "--freeze|stem,layer5",
        "freeze: 'layer5' is no part of the net; did you mean layer3 or layer2 or layer1?",
    ),
    mistake(
        "a part of another project's name",
        "",
        "--train-only|classifier",
        "train_only: 'classifier' is no part of the net; use one of stem, layer1, layer2, layer3, fc",
    ),
    mistake(
        "frozen and trained",
        "",
        "--freeze|stem|--train-only|fc",
        "train_only: 'fc' says what --freeze stem says too; give one of them",
        2,
    ),
    mistake(
        "all frozen", "", "--freeze|stem,layer?,fc", "freeze: 'stem,layer?,fc' leaves nothing to train; leave out fc"
    ),
    mistake("layers that grow", "", "--layer-decay|1.5", "layer_decay: 1.5 is not in (0, 1]; give 0.75", 2),
    mistake("a metric", "", "--monitor|f1", "monitor: 'f1' is unknown; use one of top1, loss, macro_f1, map", 2),
    mistake("no patience", "", "--patience|-1", "patience: -1 is negative; give 0 or more", 2),
    mistake(
        "the weight of no class",
        "printf 'bee 1\\nbea 2\\n' > w.txt",
        "--class-weights|w.txt",
        "w.txt, line 2: 'bea' is no class of the set; use one of bee, cat with a space, éléphant",
    ),
    mistake(
        "no file of class weights",
        "",
        "--class-weights|balance",
        "class_weights: 'balance' cannot be read; give balanced, or a text file",
    ),
    mistake(
        "a misspelt flag",
        "",
        "--validation-shar|0.1",
        "unknown argument '--validation-shar'; did you mean --validation-share?",
        2,
    ),
    mistake("a misspelt recipe", "", "--recipe|fine-tune", "recipe: 'fine-tune' is unknown; did you mean finetune?", 2),
]


def file(name, line, message, marks=toml):
    return mistake(
        name, f"printf '%s\\n' 'extends = \"finetune\"' '{line}' > my.toml", "--recipe|my.toml", message, 2, marks
    )


FILES = [
    file("a setting misspelt", "epoch = 5", "my.toml line 2: unknown setting 'epoch'; did you mean epochs?"),
    file("a section", "[data]", "my.toml line 2: [data]: there are no sections; write name = value, one a line"),
    file(
        "a text without quotes",
        "weights = resnet50.pth",
        f"my.toml line 2: 'weights = resnet50.pth' is not TOML (Invalid value, column 11); {SYNTAX}",
    ),
    file("a number in quotes", 'epochs = "5"', "my.toml line 2: epochs: '5' is not a whole number"),
    mistake(
        "a base that is not there",
        "echo 'extends = \"fintune\"' > my.toml",
        "--recipe|my.toml",
        "my.toml line 1: extends: 'fintune' is unknown; did you mean finetune?",
        2,
        toml,
    ),
    mistake(
        "a misspelt file",
        "touch my.toml",
        "--recipe|mine.toml",
        "recipe: mine.toml: does not exist; did you mean my.toml?",
        2,
    ),
]


@pytest.mark.parametrize(("before", "flags", "code", "message"), [*DATA, *WEIGHTS, *SETTINGS, *FILES])
def test_a_mistake_is_one_line_that_says_what_to_do(before, flags, code, message, refused):
    subprocess.run(["sh", "-ec", before], check=True)
    assert refused(*flags) == (code, f"train: error: {message}\n")


def test_classes_in_another_order_than_the_checkpoints_are_named(refused):
    recipe, options, _ = parse(COMMAND)
    spec = load_dataset(recipe, options.data_dir).input
    before = dataclasses.replace(spec, classes=spec.classes[::-1])
    recipe = dataclasses.replace(recipe, model="resnet8")
    state = {"update": 5, "recipe": to_dict(recipe), "dataset": before.to_dict(), "best": None, "last": None}
    net = create_model("resnet8", num_classes=3)
    save_checkpoint(Path("run/checkpoints/step-00000005"), list(net.get_parameters()), [], state)
    message = (
        "resume: another training set than the checkpoint's (classes 'éléphant' → 'bee', 'bee' → 'éléphant'); "
        "give the same data, another --out-dir, or --allow-other-data"
    )
    assert refused("--out-dir", "run") == (1, f"train: error: {message}\n")
