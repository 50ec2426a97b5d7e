"""The bound of what Adam has trained: it divides even a gradient that is rounding by its own size."""

import copy
import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.layers.difference import ROUNDING_FACTOR, relative_error
from resnet_fn.parity.stages import LAST, MOVED
from resnet_fn.parity.trace import Task, make_batches
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="PyTorch's side needs torch: pip install torch")
from resnet_fn.parity.torch_side import record_reference  # noqa: E402

ADAMW = dataclasses.replace(recipe("digits"), optimizer="adamw", nesterov=False, learning_rate=1e-3)


def block() -> list:
    """The gradient of a bias before BatchNorm is rounding; the statistics follow the bias."""
    return [torch.nn.LazyConv2d(8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]


def test_a_batch_in_another_order_is_the_same_training():
    """Sums over a batch round otherwise then. In torch alone, both trainings are as far apart as is allowed."""
    net = torch.nn.Sequential(*block(), *block(), torch.nn.Flatten(), torch.nn.LazyLinear(4))
    batches = make_batches(5, 16, 1, 8, 4, 0)
    recording = record_reference(net, Task(ADAMW, batches), probes=False)
    trained, bounds = recording.trace, recording.rounding
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(16)
        shuffled = [(images[order], labels[order]) for images, labels in batches]
        again = record_reference(net, Task(ADAMW, shuffled), probes=False).trace
        errors = {name: relative_error(again.after[-1][name], value) for name, value in trained.after[-1].items()}
        assert errors["4.running_mean"] > 1e-4  # further than the tolerance
        for name, error in errors.items():
            assert error <= max(1e-4, ROUNDING_FACTOR * bounds[LAST][name]), name
        weights = {name: trained.after[-1][name] for name in trained.gradients}  # as the ladder has them there
        state = {name: torch.from_numpy(array) for name, array in {**again.after[-1], **weights}.items()}
        other = copy.deepcopy(net).eval()
        other.load_state_dict(state, strict=False)
        outputs = other(torch.from_numpy(batches[0][0])).detach().numpy()
        error = relative_error(outputs, trained.last_outputs["logits"])
        assert error <= max(1e-4, ROUNDING_FACTOR * bounds[MOVED]["logits"])


def test_drift_is_of_the_trained_module():
    net = torch.nn.Sequential(*block(), torch.nn.Flatten(), torch.nn.LazyLinear(4))
    net[1].register_buffer("running_var", torch.ones(8), persistent=False)
    task = Task(dataclasses.replace(ADAMW, learning_rate=1e-6), make_batches(2, 16, 1, 8, 4, 0))
    assert record_reference(net, task, probes=False).rounding[MOVED]["logits"] < 1e-4
