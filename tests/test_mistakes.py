"""What a first-time user of the recipe finetune gets wrong: each is one line, before anything is
trained or written.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config import cli
from resnet_fn.models import create_model
from resnet_fn.train import main
from resnet_fn.weights.files import write_arrays

COMMAND = shlex.split(
    "--recipe finetune --data-dir photographs --weights net.safetensors --batch-size 4"
)
NETS = {
    "net": {},
    "stem": {"stem": "imagenet"},
    "grey": {"in_channels": 1},
    "norm": {"norm": "none"},
}


@pytest.fixture(scope="module")
def nets(device, tmp_path_factory):
    """Weight files: of a small net, with another stem, of grey pictures, without BatchNorm, and of
    no ResNet.
    """
    place = tmp_path_factory.mktemp("nets")
    for name, options in NETS.items():
        net = create_model("resnet8", num_classes=3, **options)
        write_arrays(
            place / f"{name}.safetensors", {p.name: p.asnumpy() for p in net.get_parameters()}
        )
    write_arrays(
        place / "vgg.safetensors", {"features.0.weight": np.zeros((64, 3, 3, 3), np.float32)}
    )
    return place


@pytest.fixture
def refused(folder, nets, monkeypatch, capsys):
    """refused(*flags) runs the command with these flags more; returns its exit code and what stderr
    got.
    """
    shutil.copytree(nets, ".", dirs_exist_ok=True)
    for name in ("stdout", "stderr"):
        # a command that trains puts others in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))

    def run(*flags):
        with pytest.raises(SystemExit) as caught:
            cli.run("train", main, [*COMMAND, *flags])
        shown = capsys.readouterr()
        assert shown.out == ""
        assert not Path("runs").exists()
        return caught.value.code, shown.err

    return run


# "# " name; "$ " shell command to run first; flags beside COMMAND; exit code, and parts of the
# message.
MISTAKES = r"""
# the folder around the set
$ mkdir outer; mv photographs outer
--data-dir outer
1: data_dir: outer … one class only, 'photographs' … give --data-dir outer/photographs
# the folder around the set, nothing split off
$ mkdir outer; mv photographs outer
--data-dir outer --validation-share 0
1: data_dir: … 'outer' … give --data-dir outer/photographs
# a folder too high up
$ mkdir -p outer/other/x; mv photographs outer
--data-dir outer/other
1: data_dir: outer/other … no images
# an empty folder
$ mkdir empty
--data-dir empty
1: data_dir: empty contains no class folders … empty/CLASS
# the folder of one class
--data-dir photographs/train/bee
1: data_dir: photographs/train/bee … no folders … --data-dir photographs
# one class only
$ rm -r photographs/val photographs/train/[bc]*
1: data_dir: photographs/train … one class only, 'éléphant' … a folder for each class
# an empty class
$ mkdir photographs/train/zebra
1: data_dir: photographs/train/zebra … no images; add images or remove the folder
# a class of val alone
$ mv photographs/val/bee photographs/val/bees
1: data_dir: photographs/val/bees … use one of bee, cat with a space, éléphant
# a misspelt folder
--data-dir photograph
1: data_dir: 'photograph' does not exist; did you mean photographs?
# the archive
$ touch photographs.zip
--data-dir photographs.zip
1: data_dir: 'photographs.zip' is a file; extract the archive, and give the extracted folder
# nothing that validates
$ rm -r photographs/val
--validation-share 0
1: data_dir: … 'photographs' … val/CLASS/*.JPEG … --validation-share 0.2
# an update of more than there are
--batch-size 32
1: batch_size: 32 … give at most 21
# an empty file
$ : > 'photographs/train/bee/00 ü.JPEG'
1: on_bad_sample: 1 of 21 … 'photographs/train/bee/00 ü.JPEG' is empty … --on-bad-sample skip
# a list with a missing file
$ printf 'train/bee/00 ü.JPEG\tbee\ntrain/cat with a space/00 ü.JPEG\tcat\n' > train.txt; cp train.txt val.txt
$ printf 'train/no.jpg\tbee\n' >> train.txt
--train-list train.txt --val-list val.txt
1: on_bad_sample: 1 of 3 … 'photographs/train/no.jpg' is missing … --on-bad-sample skip
# lists of another folder
$ echo bee/1.jpg bee > train.txt
--train-list train.txt --val-list val.txt
1: train.txt line 1: photographs/bee/1.jpg does not exist … --data-dir
# no list
--train-list nolist.txt --val-list val.txt
1: train_list: nolist.txt does not exist … give a list of images
# a folder for a list
$ echo 'train/bee/00 ü.JPEG bee' > val.txt
--train-list photographs --val-list val.txt
1: train_list: photographs cannot be read (Is a directory) … give a list of images
# a list without classes
$ echo train/bee/1.jpg > train.txt
--train-list train.txt --val-list val.txt
1: train.txt line 1: 'train/bee/1.jpg' … write PATH CLASS
# a CSV without the column
$ printf 'path,kind\ntrain/bee/1.jpg,bee\n' > train.csv
--train-list train.csv --val-list val.txt
1: train.csv line 1: … path, kind … no class column; name the class column label
# a class of the validation list alone
$ printf 'train/bee/00 ü.JPEG\tbee\ntrain/cat with a space/00 ü.JPEG\tcat\n' > train.txt
$ printf 'train/bee/00 ü.JPEG\twasp\n' > val.txt
--train-list train.txt --val-list val.txt
1: val.txt line 1: 'wasp' … use one of bee, cat
# misspelt weights
--weights net.safetensor
1: weights: net.safetensor does not exist; did you mean net.safetensors
# weights of no ResNet
--weights vgg.safetensors
1: weights: vgg.safetensors: … features.0.weight … torchvision, mindcv … give other weights
# weights of another net
--model resnet20
1: weights: net.safetensors … resnet8 … resnet20; give --model resnet8
# weights of another stem
--weights stem.safetensors --model resnet8
1: weights: stem.safetensors … 'imagenet' … 'cifar'; give --stem imagenet
# weights of another norm
--weights norm.safetensors --model resnet8
1: weights: norm.safetensors … 'none' … 'batch' … --norm none
# weights of grey pictures
--weights grey.safetensors
1: weights: grey.safetensors … 1 channel … 3; give other weights
# no weights
--weights ''
1: model: … give --model NAME or --weights FILE
# a part that is not there
--freeze stem,layer5
1: freeze: 'layer5' … did you mean layer3
# a part of another project's name
--train-only classifier
1: train_only: 'classifier' … use one of stem, layer1, layer2, layer3, fc
# all frozen
--freeze 'stem,layer?,fc'
1: freeze: 'stem,layer?,fc' … leave out fc
# the weight of no class
$ printf 'bee 1\nbea 2\n' > w.txt
--class-weights w.txt
1: w.txt line 2: 'bea' … use one of bee, cat with a space, éléphant
# no file of class weights
--class-weights balance
1: class_weights: balance … give 'balanced' or the path of a text file
"""


def cases():
    for block in MISTAKES.strip().removeprefix("# ").split("\n# "):
        name, *lines = block.splitlines()
        code, message = lines.pop().split(": ", 1)
        before = "\n".join(line[2:] for line in lines if line.startswith("$ "))
        flags = [word for line in lines if line.startswith("--") for word in shlex.split(line)]
        yield pytest.param(before, flags, int(code), message.split(" … "), id=name)


@pytest.mark.parametrize(("before", "flags", "code", "parts"), list(cases()))
def test_a_mistake_is_one_line_with_a_fix(before, flags, code, parts, refused, says):
    subprocess.run(["sh", "-ec", before], check=True)
    ended, shown = refused(*flags)
    says(shown, "train: error: ", *parts)
    assert ended == code
