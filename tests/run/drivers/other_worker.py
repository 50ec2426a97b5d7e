"""Under msrun: runs of which each worker has its own recipe and options; each rank writes the
errors that it got.

CASES.json: {name: [[recipe, options] of rank 0, the same of rank 1]}, settings that differ from the
defaults, and in the options the "folder" that it runs in; or {name: [[module, word …] of rank 0, the
same of rank 1]}, a command or a file beside this one, whose main gets the words. The first case
joins the workers.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train

rank = int(os.environ["RANK_ID"])
home = Path.cwd()
errors = {}
for name, ranks in json.loads(Path(sys.argv[1]).read_text()).items():
    os.chdir(home)
    first, *rest = ranks[rank]
    try:
        if isinstance(first, str):
            importlib.import_module(first).main(rest)
        else:
            os.chdir(rest[0].pop("folder", "."))
            train(Recipe(**first), RunOptions(progress=False, **rest[0]))
        errors[name] = ""
    except ValueError as error:
        errors[name] = str(error)
    (home / f"errors{rank}.json").write_text(json.dumps(errors))
