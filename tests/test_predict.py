"""The commands that take a trained net: what they reject, before any work."""

import importlib

import pytest

from resnet_fn.config import cli


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("predict", "--top x x.png", "--top: 'x' is not a whole number"),
        ("predict", "--csv a.csv --json x.png", "--csv writes what --json prints; give one of them"),
        ("predict", "--sort doub x.png", "--sort: 'doub' is unknown; use one of name, doubt"),
        ("predict", "--top 0 x.png", "--top: 0 is too small; give 1 or more"),
        ("export", "--format onnx --out x.onnx --batch no", "--batch: 'no' is not a whole number above 0"),
        ("export", "--format safetensors --out x.safetensors --batch 2", "--batch: a safetensors file holds"),
        ("export", "--format mindir --out x.mindir --image-size -2", "--image-size: -2 is negative"),
        ("export", "--format onnx --out a/x.mindir", "--out: a/x.mindir does not end in .onnx; give --out a/x"),
        ("export", "--format mindr --out x", "--format: 'mindr' is unknown; use one of mindir"),
        (
            "evaluate",
            "--batch-size 0 --image-size -1 --stem d",
            "--batch-size: 0 is too small; give 1 or more; "
            "--image-size: -1 is negative; give pixels, or 0 for the recipe's own; "
            "--recipe, --model and --stem go with --weights; RUN has its own",
        ),
        (
            "evaluate",
            "--threads two --which bets --batch-size 1.5 --jsn x",
            "unknown argument '--jsn'; did you mean --json?; --threads: 'two' is not a whole number; "
            "--which: 'bets' is unknown; use one of last, best; --batch-size: '1.5' is not a whole number",
        ),
    ],
)
def test_wrong_usage_is_an_error_before_any_work(command, words, message):
    with pytest.raises(cli.UsageError) as caught:
        importlib.import_module(f"resnet_fn.{command}").main(["--checkpoint", "nowhere", *words.split()])
    assert str(caught.value).startswith(message)
