"""Parts by name; wrong flags are answered before any work; results as text."""

import pytest

from resnet_fn.benchmark.__main__ import PARTS, lines, main
from resnet_fn.config import cli


def test_unknown_parts_name_the_nearest():
    with pytest.raises(cli.UsageError, match=r"part: 'dat' is unknown; .*data"):
        main(["dat"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["step", "--rounds", "0"], "--rounds: 0 is too small; give 1 or more"),
        (["data", "--images", "2"], "--images: 2 is too small; give 64 or more"),
        (["startup", "--net", "resnet18"], r"--net: 'resnet18' is unknown; .*resnet18-cifar"),
        (["step", "--against", "torch,model_trian"], r"--against: 'model_trian' is unknown; .*model_train"),
        (["allreduce", "--workers", "x"], "--workers: 'x' is not a whole number"),
        (["step", "--runds", "2"], r"unknown argument '--runds'; .*--rounds"),
    ],
)
def test_wrong_flags_are_answered_before_any_work(arguments, message):
    with pytest.raises(cli.UsageError, match=message):
        main(arguments)


@pytest.mark.parametrize("part", PARTS)
def test_help_says_what_the_numbers_mean(part, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([part, "--help"])
    assert "--rounds N" in capsys.readouterr().out


def test_results_as_text():
    result = {
        "net": "resnet20-digits",
        "seconds": {"ours": [3.0, 1.0, 2.5], "torch": [2.0, None, 4.0]},
        "bytes": 204668736,
        "ratio": {"torch": 1.23456},
        "memory_mb": [438.06, 438.1],
    }
    assert "\n".join(lines(result)) == (
        "net                                   resnet20-digits\n"
        "seconds\n"
        "  ours                                2.5 [1, 3]\n"
        "  torch                               2, None, 4\n"
        "bytes                                 204,668,736\n"
        "ratio\n"
        "  torch                               1.235\n"
        "memory_mb                             438.1, 438.1"
    )
