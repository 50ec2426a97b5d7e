"""Three updates and an evaluation of each recipe: what they gave, to the bit, and whether it was compiled.

Arguments: recipes (JSON, a list of changes of one small recipe, "options" among them for how it is computed), and
"cache" or "none".
"""

import hashlib
import json
import sys
from pathlib import Path

import mindspore
from mindspore import Tensor

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.scoring import score
from resnet_fn.run.build import build_run
from resnet_fn.runtime import process
from resnet_fn.runtime.signals import StopRequest

workers = process.start()
for changes in json.loads(sys.argv[1]):
    options = RunOptions(compile_cache=sys.argv[2] == "cache", **changes.pop("options", {}))
    recipe = Recipe(**{"model": "resnet8", "batch_size": 48, "image_size": 8, **changes})
    run = build_run(recipe, options, workers, RunFolder(Path()), StopRequest())
    said: list[str] = []
    run.compile_cache.say = said.append
    given = hashlib.sha256()
    losses = []
    for update in range(3):
        images, labels = map(Tensor, run.feed.batch(update))
        rate = Tensor(run.schedule(update), mindspore.float32)
        result = run.train_step(images, labels, rate, None, *run.noise(update))
        losses.append(float(result.loss))
        for tensor in result[:4]:
            given.update(tensor.asnumpy().tobytes())
    for parameter in (*run.state.weights, *run.state.training):
        given.update(parameter.asnumpy().tobytes())
    given.update(score(run.eval_step, run.dataset, 64, workers).loss.tobytes())
    print(json.dumps({"bits": given.hexdigest(), "losses": losses, "said": said}), flush=True)
