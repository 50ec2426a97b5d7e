"""Flags made from fields, the flags that choose a trained net; a mistake is one line, and an exit code."""

import subprocess
import sys

import pytest

from resnet_fn import predict
from resnet_fn.config import cli


def parsed(*words):
    parser = cli.Parser("export", "", "")
    cli.add_checkpoint_flags(parser)
    parser.add_argument("--out")
    return parser.parse(words)


@pytest.mark.parametrize("words", [("run",), ("--checkpoint", "run"), ("--out", "x", "run"), ("run", "--out", "x")])
def test_a_run_stands_alone_or_after_its_flag(words):
    assert cli.chosen_checkpoint(parsed(*words)) == "run"


@pytest.mark.parametrize("words", [(), ("run", "--checkpoint", "other")])
def test_one_run_is_needed(words):
    with pytest.raises(cli.UsageError, match=r"^give either RUN or --checkpoint RUN: a run folder or a checkpoint"):
        cli.chosen_checkpoint(parsed(*words))


def test_predict_needs_an_image_beside_the_run():
    with pytest.raises(cli.UsageError, match=r"^no image is given beside 'run'; give RUN IMAGE_OR_FOLDER$"):
        predict.main(["run"])


def test_flags_may_stand_between_what_has_no_flag():
    parser = cli.Parser("predict", "", "")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--top", type=int)
    assert parser.parse(["run", "--top", "3", "a.png", "b.png"]).images == ["run", "a.png", "b.png"]


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m resnet_fn.train --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
