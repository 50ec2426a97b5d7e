"""The nets that are measured, and the flags that choose one."""

import argparse
from typing import Any

# name: model, stem, batch size, image size, steps of one turn
NETS: dict[str, dict[str, Any]] = {
    "resnet18-cifar": {"model": "resnet18", "stem": "cifar", "batch_size": 32, "image_size": 32, "steps": 3},
    "resnet50-224": {"model": "resnet50", "stem": "imagenet", "batch_size": 8, "image_size": 224, "steps": 2},
    "resnet20-cifar": {"model": "resnet20", "stem": "cifar", "batch_size": 128, "image_size": 32, "steps": 6},
    "resnet20-digits": {"model": "resnet20", "stem": "cifar", "batch_size": 64, "image_size": 16, "steps": 20},
}


def specification(net: str, threads: int) -> dict[str, Any]:
    """What a side works on: a row of NETS with its classes and threads."""
    return {"classes": 1000 if net == "resnet50-224" else 10, "threads": threads, **NETS[net]}


def add_net_arguments(parser: argparse.ArgumentParser) -> None:
    """Which net, and how often."""
    parser.add_argument("--net", choices=tuple(NETS), default="resnet18-cifar", help="default resnet18-cifar")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each side; default 5")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """How many CPU threads each side has."""
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads of each; 0: its own default")
