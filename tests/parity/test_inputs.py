"""Both sides' batches are compared bit for bit."""

import numpy as np

from resnet_fn.parity.inputs import inputs_stage
from resnet_fn.parity.traces.batches import make_batches

BATCHES = make_batches(2, 4, 1, 2, 3)


def test_inputs_are_compared_bit_for_bit():
    assert inputs_stage(BATCHES, BATCHES).verdict == "ok"
    images, labels = BATCHES[1]
    one_bit = (np.nextafter(images, np.float32(9)), labels)
    stage = inputs_stage([BATCHES[0], one_bit], BATCHES)
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "inputs of update 2")


def test_other_names_differ():
    images, labels = BATCHES[0]
    stage = inputs_stage([({"a": images}, labels)], [({"b": images}, labels)])
    assert (stage.verdict, stage.failed) == ("DIFFERS", "update 1: the inputs have other names or shapes")
