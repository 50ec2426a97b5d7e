"""PyTorch's side: what is recorded of a module, and what is done to it before."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.layers.settings import without_dropout
from resnet_fn.parity.trace import Task, make_batches
from resnet_fn.recipes import recipe

pytest.importorskip("torch", reason="PyTorch's side needs torch: pip install torch")
from resnet_fn.parity.torch_side import layers_of, optimizer_alone, prepare_reference, record_reference

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)


def test_transformers_run_layer_by_layer_in_evaluation_mode_too(torch):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 1))
    tokens = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    attention, *others = layers_of(net.eval(), tokens, False)
    assert [one.name for one in others[:3]] == ["0.layers.0.dropout1", "0.layers.0.norm1", "0.layers.0.linear1"]
    assert dict(attention.parameters)["out_proj.weight"] == (8, 8)
    assert len(attention.further) == 2


def test_a_module_that_asks_for_its_version_is_put_back(torch):
    """As torchvision's MNASNet does when it loads."""

    class Versioned(torch.nn.Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(x)

        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            assert metadata["version"] == 2
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    net = Versioned()
    layers_of(net, IMAGES, True)
    assert optimizer_alone(net, Task(recipe("digits"), BATCHES), None)
    assert not net.norm.running_mean.any()


def test_every_kind_of_dropout_is_set_to_0_and_put_back(torch):
    class DropPath(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop_prob = 0.2

    net = torch.nn.ModuleDict(
        {
            "drop": torch.nn.Dropout(0.5),
            "none": torch.nn.Dropout(0.0),
            "attn": torch.nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True),
            "lstm": torch.nn.LSTM(4, 4, 2, dropout=0.3),
            "path": DropPath(),
            "rates": torch.nn.ModuleList([torch.nn.Dropout(np.float32(0.25)), torch.nn.Dropout(torch.tensor(0.25))]),
        }
    ).train()
    x = torch.randn(2, 3, 4)
    with without_dropout(net.named_modules()) as found:
        wanted = [("drop", "p", 0.5), ("attn", "dropout", 0.1), ("lstm", "dropout", 0.3), ("path", "drop_prob", 0.2)]
        assert found == [*wanted, ("rates.0", "p", 0.25), ("rates.1", "p", 0.25)]
        assert all(torch.equal(layer(x), x) for layer in net["rates"])
        assert torch.equal(net["drop"](x), x)
        assert torch.equal(net["attn"](x, x, x)[0], net["attn"](x, x, x)[0])
        assert torch.equal(net["lstm"](x)[0], net["lstm"](x)[0])
    assert (net["drop"].p, net["attn"].dropout, net["lstm"].dropout, net["path"].drop_prob) == (0.5, 0.1, 0.3, 0.2)
    assert not torch.equal(net["drop"](x), x)


BATCHES = make_batches(2, 8, 3, 12, 5)


@pytest.mark.parametrize("way", ["zeros", "float", "constant", "refused"])
def test_a_module_that_makes_float32_inside_is_compared_with_float64(torch, way):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.constant = torch.nn.LSTM(36, 5, batch_first=True), torch.randn(36, 36)

        def forward(self, x):
            x = x.flatten(2)[:, :, :36]
            x = x.float() / 255 if way == "float" else x @ self.constant if way == "constant" else x
            if way == "refused" and x.dtype != torch.float32:
                raise TypeError("float32 only")
            zeros = torch.zeros(1, len(x), 5) if way == "zeros" else torch.zeros(1, len(x), 5, dtype=torch.float32)
            return self.lstm(x, (zeros, zeros))[0][:, -1]

    task = Task(dataclasses.replace(recipe("digits"), clip_norm=0.0, label_smoothing=0.0), BATCHES)
    if way == "refused":
        with pytest.raises(ValueError, match=r"test_torch_side.py:\d+: raise TypeError.*float64.*dtype=x.dtype"):
            record_reference(Net(), task, probes=False)
        return
    found = record_reference(Net(), task, probes=False)
    assert 1e-9 < found.rounding["eval forward"]["logits"] < 1e-4
    assert 1e-9 < found.rounding["gradients"]["lstm.weight_ih_l0"] < 1e-4
    assert torch.get_default_dtype() == torch.float32


def test_fresh_statistics_are_drawn_and_trained_ones_kept(torch, reference):
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


def test_constants_that_are_trained_get_noise_and_frozen_ones_are_kept(torch):
    net = torch.nn.Linear(400, 300)
    net.gate = torch.nn.Parameter(torch.zeros(500))
    net.table = torch.nn.Parameter(torch.zeros(4, 4), requires_grad=False)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    net.scale = torch.nn.Parameter(torch.full((400,), 1e-6))
    words = prepare_reference(net, torch.zeros(1, 400).numpy(), 0)
    assert words == "random numbers for 4 constant arrays of the reference: weight, bias, gate and 1 more"
    assert 0 < float((net.scale.detach() - 1e-6).abs().mean()) < 1e-6
    assert abs(float(net.weight.detach().std()) * 400**0.5 - 1) < 0.02
    assert abs(float(net.gate.detach().std()) / 0.2 - 1) < 0.1
    assert net.bias.detach().std() > 0.1
    assert not net.table.any()


def test_what_the_optimizers_function_freezes_has_no_gradient_and_torchs_generator_is_left_alone(torch):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Dropout(0.5), torch.nn.Flatten(), torch.nn.Linear(400, 5)
    )

    def make_optimizer(module):
        module[0].requires_grad_(False)
        return torch.optim.SGD([one for one in module.parameters() if one.requires_grad], 0.1)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    recording = record_reference(net, Task(recipe("digits"), BATCHES), make_optimizer=make_optimizer, probes=False)
    assert [*recording.trace.gradients] == list(recording.trainable) == ["3.weight", "3.bias"]
    assert torch.equal(torch.get_rng_state(), before)
