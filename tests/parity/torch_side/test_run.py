"""What PyTorch's side records of a linear net is its mathematics."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.torch_side.run import run_torch, state
from resnet_fn.parity.traces.batches import make_batches
from resnet_fn.parity.traces.trace import Task
from resnet_fn.recipes import recipe

BATCHES = make_batches(2, 8, 3, 12, 5)


def test_what_is_recorded(torch):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(432, 5))
    use = dataclasses.replace(recipe("digits"), clip_norm=0.5, label_smoothing=0.0)
    task = Task(use, BATCHES, 2)
    found = run_torch(net, task, precision="float64")
    names = {"1.weight", "1.bias"}
    assert found.start.keys() == found.gradients.keys() == found.after[1].keys() == names
    assert found.rates == task.rates
    weight, bias = (state(net)[name].astype(np.float64) for name in ("1.weight", "1.bias"))
    images, labels = BATCHES[0]
    x = images.reshape(8, -1).astype(np.float64)
    logits = x @ weight.T + bias
    np.testing.assert_allclose(found.eval_outputs["logits"], logits, rtol=1e-12)
    np.testing.assert_allclose(found.train_outputs[0]["logits"], logits[4:], rtol=1e-12)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found.losses[0] == pytest.approx(-np.log(probabilities[np.arange(8), labels]).mean(), rel=1e-12)
    gradient = (probabilities - np.eye(5)[labels]).T @ x / 8
    np.testing.assert_allclose(found.gradients["1.weight"], gradient, rtol=1e-9, atol=1e-12)
    of_bias = (probabilities - np.eye(5)[labels]).sum(0) / 8
    norm = np.sqrt((gradient**2).sum() + (of_bias**2).sum())
    assert found.norms[0] == pytest.approx(norm, rel=1e-9)
    clipped = gradient * min(1, 0.5 / norm)
    np.testing.assert_allclose(found.clipped["1.weight"], clipped, rtol=1e-4)  # torch divides by norm + 1e-6
    np.testing.assert_allclose(found.state["momentum"]["1.weight"], clipped + use.weight_decay * weight, rtol=1e-4)
    assert not np.array_equal(found.after[0]["1.weight"], found.after[1]["1.weight"])
    assert state(net)["1.weight"].tobytes() == weight.astype(np.float32).tobytes()  # a copy was trained
