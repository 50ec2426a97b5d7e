"""Fixtures: small runs whose nets can be evaluated, exported and asked."""

import csv
import importlib
from pathlib import Path

import mindspore
import numpy as np
import pytest
from PIL import Image

from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.models import build_net


def write_run(folder, **settings):
    """Write a run folder with one checkpoint of an untrained net for the digits.

    Its averaged weights are half the net's.
    """
    recipe = Recipe(**settings)
    dataset = load_digits()
    net = build_net(recipe, dataset.input)
    averaged = [mindspore.Parameter(p * 0.5, name=f"ema.{p.name}") for p in net.trainable_params()]
    state = {"update": 5, "epoch": 0, "best": {"top1": 0.1, "update": 5}, "last": None}
    state |= {"recipe": to_dict(recipe), "dataset": to_dict(dataset.input)}
    save_checkpoint(
        folder / "checkpoints/step-00000005", list(net.get_parameters()), averaged, state
    )
    return folder


@pytest.fixture
def make_run():
    """make_run(**settings) makes the folder run with one checkpoint: see `write_run`."""
    return lambda **settings: write_run(Path("run"), **settings)


@pytest.fixture(scope="session")
def trained(device, tmp_path_factory):
    """ResNet-8 of the fixture `run`, loaded and compiled once for all tests."""
    return load_run(write_run(tmp_path_factory.mktemp("trained"), model="resnet8", image_size=8))


@pytest.fixture
def run(make_run):
    """A run folder of ResNet-8."""
    return make_run(model="resnet8", image_size=8)


@pytest.fixture
def digits_png():
    """The first 70 test digits as PNG files, 0 … 255."""
    Path("images/deeper").mkdir(parents=True)
    pixels = load_digits().test.images[:70, ..., 0] * (255 / 16)
    for index, picture in enumerate(pixels.round().astype(np.uint8)):
        Image.fromarray(picture).save(f"images/{'deeper/' if index >= 65 else ''}{index:02d}.png")
    return Path("images")


@pytest.fixture
def main():
    """main("predict", *arguments) runs a command in this process and returns its exit code."""

    def run_command(command, *arguments):
        return importlib.import_module(f"resnet_fn.{command}").main([*map(str, arguments)])

    return run_command


@pytest.fixture
def rows_of():
    """rows_of(path) reads a table of predictions."""

    def rows(path):
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    return rows
