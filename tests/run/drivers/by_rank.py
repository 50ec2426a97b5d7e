"""A command of which worker 1 has more flags and a package path of its own: by_rank.py COMMAND PATH "MORE" FLAGS…"""

import importlib
import os
import sys

COMMAND, PATH, MORE, *FLAGS = sys.argv[1:]
if os.environ.get("RANK_ID") == "1":
    sys.path.insert(0, PATH)
    FLAGS += MORE.split()

if __name__ == "__main__":
    from resnet_fn.config import cli

    cli.run(COMMAND, importlib.import_module(f"resnet_fn.{COMMAND}").main, FLAGS)
