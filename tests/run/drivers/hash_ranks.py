"""Under msrun: three updates of a BatchNorm net; each rank writes the sha256 of its whole state and
its samples.
"""

import hashlib
import json
import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.build import build_run
from resnet_fn.runtime import process
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import broadcast_text, exchange_numbers

workers = process.start()
run = build_run(
    Recipe(model="resnet8", batch_size=60, image_size=8),
    RunOptions(),
    workers,
    RunFolder(Path()),
    StopRequest(),
)
indices = []
for update in range(3):
    images, labels = map(Tensor, run.feed.batch(update))
    run.train_step(images, labels, Tensor(run.schedule(update), mindspore.float32)).loss.asnumpy()
    indices.append(run.feed.indices(update).tolist())
everything = (*run.state.weights, *run.state.training)
state = hashlib.sha256(
    b"".join(parameter.asnumpy().tobytes() for parameter in everything)
).hexdigest()
heard = broadcast_text(9000 * "from rank 0: grüße \udcff" if workers.is_main else "", workers)
# each is one rank's, and zero on the other
numbers = np.array([2**24 + 1, 2**48 - 1, 7, 2**31 + 3])
numbers = exchange_numbers(np.where(np.arange(4) % 2 == workers.rank, numbers, 0), workers)
Path(sys.argv[1], f"rank{workers.rank}.json").write_text(
    json.dumps(
        {
            "workers": workers.size,
            "state": state,
            "indices": indices,
            "heard": heard,
            "numbers": numbers.tolist(),
        }
    )
)
