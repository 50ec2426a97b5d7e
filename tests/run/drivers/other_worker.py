"""Under msrun: runs of which each worker has its own recipe and options; each rank writes the
errors that it got.

CASES.json: {name: [[recipe, options] of rank 0, the same of rank 1]}, settings that differ from the
defaults, and in the options the "folder" that it runs in; or {name: [[command, flag …] of rank 0,
the same of rank 1]}.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train
from resnet_fn.runtime import process

workers = process.start()
home = Path.cwd()
errors = {}
for name, ranks in json.loads(Path(sys.argv[1]).read_text()).items():
    os.chdir(home)
    first, *rest = ranks[workers.rank]
    try:
        if isinstance(first, str):
            importlib.import_module(first).main(rest)
        else:
            os.chdir(rest[0].pop("folder", "."))
            train(Recipe(**first), RunOptions(progress=False, **rest[0]))
        errors[name] = ""
    except ValueError as error:
        errors[name] = str(error)
    (home / f"errors{workers.rank}.json").write_text(json.dumps(errors))
