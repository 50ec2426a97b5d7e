"""Under msrun: runs of which each worker has its own recipe and options; each rank writes the errors that it got.

CASES.json: {name: [[recipe, options] of rank 0, the same of rank 1]}, settings that differ from the defaults, and in
the options the "folder" that it runs in.
"""

import json
import os
import sys
from pathlib import Path

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train
from resnet_fn.runtime import process

workers, home = process.start(), Path.cwd()
errors = {}
for name, ranks in json.loads(Path(sys.argv[1]).read_text()).items():
    recipe, options = ranks[workers.rank]
    os.chdir(home / options.pop("folder", "."))
    try:
        train(Recipe(**recipe), RunOptions(progress=False, **options))
        errors[name] = ""
    except ValueError as error:
        errors[name] = str(error)
    (home / f"errors{workers.rank}.json").write_text(json.dumps(errors))
