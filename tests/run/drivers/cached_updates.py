"""Three updates and an evaluation of each recipe: what they gave, to the bit, and whether it was compiled.

Arguments: recipes (JSON, a list of changes of one small recipe, "options" among them for how it is computed), and
"cache" or "none".
"""

import hashlib
import json
import sys

import mindspore
from mindspore import Tensor

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.scoring import score
from resnet_fn.run.session import build_components
from resnet_fn.runtime import process

workers = process.start()
for changes in json.loads(sys.argv[1]):
    options = RunOptions(compile_cache=sys.argv[2] == "cache", **changes.pop("options", {}))
    components = build_components(
        Recipe(**{"model": "resnet8", "batch_size": 48, "image_size": 8, **changes}), options, workers
    )
    said: list[str] = []
    components.compile_cache.say = said.append
    given = hashlib.sha256()
    losses = []
    for update in range(3):
        images, labels = map(Tensor, components.feed.batch(update))
        rate = Tensor(components.schedule(update), mindspore.float32)
        result = components.train_step(images, labels, rate, None, *components.masks(update))
        losses.append(float(result.loss))
        for tensor in result[:4]:
            given.update(tensor.asnumpy().tobytes())
    for parameter in (*components.state.weights, *components.state.training):
        given.update(parameter.asnumpy().tobytes())
    given.update(score(components.eval_step, components.dataset, 64, workers).loss.tobytes())
    print(json.dumps({"bits": given.hexdigest(), "losses": losses, "said": said}), flush=True)
