"""`python -m resnet_fn.train` on a machine with AVX-512 whose table has resnet8, or not.

On a machine without AVX-512, oneDNN has the same kernels with and without the limit.

Usage: choosing.py yes|no FLAGS.
"""

import sys

from resnet_fn.config import cli
from resnet_fn.runtime import instructions
from resnet_fn.train import main

cpu = instructions.Cpu(26, 2, True)
instructions.this_cpu = lambda: cpu
instructions.limit()
if sys.argv[1] == "yes":
    instructions.FASTER_UNLIMITED[cpu[:2]] = frozenset({"resnet8"})
if __name__ == "__main__":
    cli.run("train", main, sys.argv[2:])
