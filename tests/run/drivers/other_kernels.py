"""Trainings of worker 0 and worker 1 on machines with AVX-512, of which that of worker 1 has
resnet8 in its table.
"""

import os
from unittest import mock

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train
from resnet_fn.runtime import instructions


def main(words):
    """Train to OUT_DIR, the one word; what was chosen goes with it."""
    cpu = instructions.Cpu(26, 2, True)
    nets = frozenset({"resnet8"} if os.environ["RANK_ID"] == "1" else ())
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):
        patch.setattr(instructions, "this_cpu", lambda: cpu)
        patch.setattr(instructions, "_may_choose", True)
        patch.setattr(instructions, "_made", instructions.choice())
        patch.setitem(instructions.FASTER_UNLIMITED, cpu[:2], nets)
        for name in (instructions.VARIABLE, instructions.IS_DEFAULT):
            os.environ.pop(name, None)
        instructions.limit()
        recipe = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=1)
        train(recipe, RunOptions(out_dir=words[0], progress=False))
