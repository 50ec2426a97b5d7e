"""The predict command: what it refuses, before any work."""

import pytest

from resnet_fn import predict
from resnet_fn.config import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top", "x", "x.png"], "--top: 'x' is not a whole number"),
        (["--csv", "a.csv", "--json", "x.png"], "--csv writes what --json prints; give one of them"),
        (["--sort", "doub", "x.png"], "--sort: 'doub' is unknown; use one of name, doubt"),
        (["--top", "0", "x.png"], "--top: 0 is too small; give 1 or more"),
    ],
)
def test_wrong_usage_is_said_before_any_work(arguments, message):
    with pytest.raises(cli.UsageError) as caught:
        predict.main(["--checkpoint", "nowhere", *arguments])
    assert str(caught.value).startswith(message)
