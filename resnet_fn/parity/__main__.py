"""Compare a net and its training step with PyTorch's, stage by stage: python -m
resnet_fn.parity.
"""

from collections.abc import Sequence

from resnet_fn.config import cli
from resnet_fn.parity import commands


def _inputs(arguments: Sequence[str]) -> int:
    # imported here, because no other command needs it, as of `_self`
    from resnet_fn.parity.inputs.command import inputs

    return inputs(arguments)


def _self(arguments: Sequence[str]) -> int:
    from resnet_fn.parity.one_net import compare_ways

    return compare_ways(arguments)


_COMMANDS = {
    "record": commands.record,
    "replay": commands.replay_trace,
    "compare": commands.compare,
    "inputs": _inputs,
    "self": _self,
}


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand `record`, `replay`, `compare`, `inputs` or `self`.

    Without a subcommand, run and compare both nets.
    """
    if arguments and arguments[0] in _COMMANDS:
        return _COMMANDS[arguments[0]](arguments[1:])
    return commands.live(arguments)


if __name__ == "__main__":
    cli.run("parity", main)
