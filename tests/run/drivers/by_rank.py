"""The train command, of which worker 1 has a package path of its own, and other kernels:
by_rank.py PATH FLAGS…
"""

import os
import sys

PATH, *FLAGS = sys.argv[1:]
if os.environ.get("RANK_ID") == "1":
    sys.path.insert(0, PATH)
    os.environ["ONEDNN_DEFAULT_FPMATH_MODE"] = "BF16"

if __name__ == "__main__":
    from resnet_fn.config import cli
    from resnet_fn.train import main

    cli.run("train", main, FLAGS)
