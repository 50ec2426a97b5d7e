"""python -m resnet_fn.parity: prove, stage by stage, that a net and its training step compute what PyTorch computes."""

import sys
from collections.abc import Sequence

from resnet_fn.config import cli


def main(arguments: Sequence[str]) -> int:
    """Hand over to `record`, `replay` or `compare`, or compare both frameworks in this process."""
    word = arguments[0] if arguments else ""
    if word == "record":
        from resnet_fn.parity.commands.record import record

        return record(arguments[1:])
    if word in ("replay", "compare"):
        from resnet_fn.parity.commands import replay as replay_command

        return {"replay": replay_command.replay_trace, "compare": replay_command.compare}[word](arguments[1:])
    from resnet_fn.parity.commands.live import live

    return live(arguments)


if __name__ == "__main__":
    cli.run("parity", main, sys.argv[1:])
