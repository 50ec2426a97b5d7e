"""The bound of weights that Adam has trained: it divides even a gradient that is rounding by its own size."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.layers.difference import ROUNDING_FACTOR, relative_error
from resnet_fn.parity.stages import LAST
from resnet_fn.parity.trace import Task, make_batches
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="PyTorch's side needs torch: pip install torch")
from resnet_fn.parity.reference.nets import reference_net  # noqa: E402
from resnet_fn.parity.torch_side import record_reference  # noqa: E402


def test_a_batch_in_another_order_is_the_same_training():
    """Sums over a batch round otherwise then: in torch alone, weights after update 5 are as far apart as is allowed."""
    adamw = dataclasses.replace(recipe("digits"), optimizer="adamw", nesterov=False, learning_rate=1e-3)
    torch.manual_seed(0)
    net = reference_net("resnet8", num_classes=4, in_channels=1, stem="", norm="batch", image_size=8)
    batches = make_batches(5, 16, 1, 8, 4, 0)
    recording = record_reference(net, Task(adamw, batches))
    weights, bounds = recording.trace.after[-1], recording.rounding[LAST]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(16)
        again = record_reference(net, Task(adamw, [(images[order], labels[order]) for images, labels in batches]))
        for name in recording.trace.gradients:
            error = relative_error(again.trace.after[-1][name], weights[name])
            assert error <= max(1e-4, ROUNDING_FACTOR * bounds[name]), name
