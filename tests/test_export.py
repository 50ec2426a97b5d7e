"""The export command: what it refuses, before any work."""

import pytest

from resnet_fn import export
from resnet_fn.config import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "onnx", "--out", "x.onnx", "--batch", "no"], "--batch: 'no' is not a whole number above 0"),
        (["--format", "safetensors", "--out", "x.safetensors", "--batch", "2"], "--batch: a safetensors file holds"),
        (["--format", "mindir", "--out", "x.mindir", "--image-size", "-2"], "--image-size: -2 is negative"),
        (["--format", "onnx", "--out", "a/x.mindir"], "--out: a/x.mindir does not end in .onnx; give --out a/x"),
        (["--format", "mindr", "--out", "x"], "--format: 'mindr' is unknown; use one of mindir"),
    ],
)
def test_wrong_usage_is_said_before_any_work(arguments, message):
    with pytest.raises(cli.UsageError) as caught:
        export.main(["--checkpoint", "nowhere", *arguments])
    assert str(caught.value).startswith(message)
