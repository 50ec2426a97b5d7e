"""`python -m resnet_fn.train` on a machine whose table has resnet8, or not.

Usage: choosing.py yes|no|RANK FLAGS; a rank is the only worker whose table has the net.
"""

import os
import sys

import resnet_fn  # noqa: F401 (limits oneDNN)
from resnet_fn.config import cli
from resnet_fn.runtime import instructions
from resnet_fn.train import main

if sys.argv[1] in ("yes", os.environ.get("RANK_ID")):
    kind = instructions.this_cpu()[:2]
    instructions.FASTER_UNLIMITED[kind] = frozenset({"resnet8"})
if __name__ == "__main__":
    cli.run("train", main, sys.argv[2:])
