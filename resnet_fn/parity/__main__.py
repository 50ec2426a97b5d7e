"""python -m resnet_fn.parity: prove, stage by stage, that a net and its training step compute what PyTorch computes."""

import sys
from collections.abc import Sequence

from resnet_fn.config import cli
from resnet_fn.parity import commands

_COMMANDS = {"record": commands.record, "replay": commands.replay_trace, "compare": commands.compare}


def main(arguments: Sequence[str]) -> int:
    """Run `record`, `replay` or `compare`, or compare both frameworks in this process."""
    if arguments and arguments[0] in _COMMANDS:
        return _COMMANDS[arguments[0]](arguments[1:])
    return commands.live(arguments)


if __name__ == "__main__":
    cli.run("parity", main, sys.argv[1:])
