"""Wrong usage of any command is an error before any work."""

import importlib

import pytest

from resnet_fn.config import cli

SECOND_OF_TWO = "--nnodes 2 --master-port 1 --master-addr x"


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (
            "train --nesterov False",
            "unknown argument 'False'|start a flag with --|no value to a yes/no flag",
        ),
        ("train --data-dir a\udcff", "data_dir: 'a\\udcff'|not UTF-8; rename"),
        ("train --recipe none.toml", "none.toml: |does not exist|a recipe's name|.toml"),
        ("train --amp", "'--amp'|--precision fp16"),
        ("train --gpu", "'--gpu'|--device CPU or --device Ascend"),
        (
            "train --num-workers=4",
            "'--num-workers'|--data-threads N|python -m resnet_fn.launch --workers N",
        ),
        ("train --flip=true", "'true'|give --flip or --no-flip alone"),
        ("train flip=true", "'flip=true'|give --flip or --no-flip alone"),
        ("train --milestones 30 60", "'60'|several numbers have commas, as in --milestones 30,60"),
        ("train finetune", "'finetune'|give --recipe finetune"),
        ("train other/my-run.toml", "'other/my-run.toml'|give --recipe other/my-run.toml"),
        ("train epochs", "'epochs'|write --epochs"),
        ("train --dynamic-batch", "'--dynamic-batch'|did you mean"),
        ("train --flip yes", "'yes'|no value to a yes/no flag"),
        (
            "train --dataset .",
            "--dataset: '.' is a folder; give --dataset imagefolder --data-dir .",
        ),
        ("evaluate run --split test", "'--split'|--data-dir FOLDER"),
        ("train --no-nestrov", "'--no-nestrov'|--no-nesterov?"),
        ("train --no-epoch", "'--no-epoch'|--epochs?"),
        ("train --no-cuda", "'--no-cuda'|--device CPU or --device Ascend"),
        ("train --no-quarkle", "'--no-quarkle'|there is no such flag"),
        ("pack folder out --amp", "'--amp'|there is no such flag"),
        ("export --format onnx --out x.onnx", "give either RUN or --checkpoint RUN"),
        ("evaluate run --checkpoint other", "give either RUN or --checkpoint RUN"),
        ("predict run", "no image is given after 'run'; give RUN IMAGE_OR_FOLDER"),
        (
            "evaluate nowhere --report /dev/null/a",
            "--report: '/dev/null/a' cannot be written; give ",
        ),
        ("evaluate nowhere --json .", "--json: '.' cannot be written; give "),
        ("train --recipe mine.json", "recipe: 'mine.json'|recipe files end in .toml"),
        ("predict nowhere --top x x.png", "--top: |'x'"),
        ("evaluate nowhere --which bets", "--which: |'bets'|last|best"),
        ("evaluate nowhere --threads two", "--threads: 'two'|give a whole number"),
        ("predict nowhere --threshold half x.png", "--threshold: 'half'|give a number"),
        ("predict nowhere --csv a.csv --json x.png", "--csv|--json|one of them"),
        ("predict nowhere --csv a/b x.png", "--csv: 'a/b' cannot be written; give "),
        ("predict nowhere --sort doub x.png", "--sort: |'doub'|name|doubt"),
        ("predict nowhere --top 0 x.png", "--top: 0|1 or more"),
        (
            "export nowhere --format onnx --out x.onnx --batch no",
            "--batch: 'no'|a whole number above 0",
        ),
        (
            "export nowhere --format safetensors --out x.safetensors --batch 2",
            "--batch: a safetensors file holds",
        ),
        ("export nowhere --format onnx --out a/x.mindir", "--out: a/x.mindir|.onnx|--out a/x"),
        (
            "evaluate nowhere --batch-size 0 --image-size -1 --stem d",
            "--batch-size: 0|1 or more; --image-size: -1 is negative|; --recipe, --model and "
            "--stem|--weights",
        ),
        (
            "evaluate nowhere --jsn x --reprot y",
            "'--jsn'|--json?; unknown argument '--reprot'|--report?",
        ),
        (
            "pack folder out --shards 0 --short-side -1 --quality 100",
            "--shards: 0|1..100000|; --short-side: -1|0..65535|; --quality: 100|1..95",
        ),
        ("plot nowhere --out x.gif", "--out: 'x.gif'|.png, .svg"),
        ("plot nowhere --table --out x.png", "--out cannot be used with --table; give one"),
        ("launch --workers 0 --nnodes 0", "--workers: 0|1 or more; --nnodes: 0|1 or more"),
        (f"launch --workers 3 {SECOND_OF_TWO}", "--workers: 3|2 machines"),
        (f"launch --node-rank 2 {SECOND_OF_TWO}", "--node-rank: 2|0..1"),
        ("launch --nnodes 2", "--master-port: |8118; --master-addr: 2 machines|machine 0's"),
        ("launch --master-port 65536", "--master-port: 65536|0..65535"),
        ("launch --worker 2 -- --epochs 5", "'--worker'|--workers?"),
        ("launch --workers 2 --epochs 5", "'--epochs'|arguments of resnet_fn.train after --"),
        ("inspect a.pth b.pth --out-dir x", "--out-dir|one checkpoint; leave"),
    ],
)
def test_wrong_usage_is_rejected_with_a_fix(command, parts, raises_line):
    name, *words = command.split()
    module = importlib.import_module(
        f"resnet_fn.{name}.__main__" if name == "inspect" else f"resnet_fn.{name}"
    )
    with raises_line(*parts.split("|"), kind=cli.UsageError):
        module.main(words)
