"""PyTorch's side: what is prepared, which parameters decay, and what is recorded of a linear net."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.torch_side.run import decay_groups, prepare_reference, run_torch, state
from resnet_fn.parity.trace import make_batches
from resnet_fn.recipes import recipe

BATCHES = make_batches(2, 8, 3, 12, 5)


def test_fresh_statistics_are_drawn_and_trained_ones_kept(torch, reference):
    torch.manual_seed(0)
    net = reference()
    net.inner_norm.running_mean += 3
    net.inner_norm.weight.data += torch.arange(8.0)
    gamma = net.inner_norm.weight.detach().clone()
    prepare_reference(net, BATCHES[0][0], 0)
    assert net.norm.running_mean.abs().min() > 0
    assert net.norm.weight.min() > 0.4
    assert net.norm.weight.unique().numel() == 8
    assert net.norm.momentum == 0.1
    assert torch.equal(net.inner_norm.weight, gamma)


def test_dropout_is_refused(torch):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(432, 5))
    with pytest.raises(ValueError, match=r"^reference: 1 is Dropout with p=0.3, its masks are random; set p to 0"):
        prepare_reference(net, BATCHES[0][0], 0)


def test_biases_and_norms_do_not_decay(torch, reference):
    net = reference()
    decayed, spared = decay_groups(net, 0.1)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert {names[id(parameter)] for parameter in decayed["params"]} == {
        *("first.weight", "inner.weight", "skip.0.weight", "head.weight"),
    }
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_what_is_recorded(torch):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(432, 5))
    use = dataclasses.replace(recipe("digits"), clip_norm=0.5, label_smoothing=0.0)
    names = {"fc.weight": "1.weight", "fc.bias": "1.bias"}
    found = run_torch(net, BATCHES, use, [0.1, 0.05], 2, names, double=True)
    assert found.start.keys() == found.gradients.keys() == found.later.keys() == names.keys()
    weight, bias = (state(net)[name].astype(np.float64) for name in ("1.weight", "1.bias"))
    images, labels = BATCHES[0]
    x = images.reshape(8, -1).astype(np.float64)
    logits = x @ weight.T + bias
    np.testing.assert_allclose(found.eval_logits, logits, rtol=1e-12)
    np.testing.assert_allclose(found.train_logits[0], logits[4:], rtol=1e-12)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found.losses[0] == pytest.approx(-np.log(probabilities[np.arange(8), labels]).mean(), rel=1e-12)
    gradient = (probabilities - np.eye(5)[labels]).T @ x / 8
    np.testing.assert_allclose(found.gradients["fc.weight"], gradient, rtol=1e-9, atol=1e-12)
    of_bias = (probabilities - np.eye(5)[labels]).sum(0) / 8
    norm = np.sqrt((gradient**2).sum() + (of_bias**2).sum())
    assert found.norms[0] == pytest.approx(norm, rel=1e-9)
    clipped = gradient * min(1, 0.5 / norm)
    np.testing.assert_allclose(found.clipped["fc.weight"], clipped, rtol=1e-4)  # torch divides by norm + 1e-6
    np.testing.assert_allclose(found.momentum["fc.weight"], clipped + use.weight_decay * weight, rtol=1e-4)
    assert not np.array_equal(found.first["fc.weight"], found.later["fc.weight"])
    assert state(net)["1.weight"].tobytes() == weight.astype(np.float32).tobytes()  # a copy was trained
