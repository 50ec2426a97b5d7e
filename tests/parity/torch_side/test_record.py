"""Every layer of a torch module is recorded in the order in which it runs, and the module is left as it was."""

import numpy as np

from resnet_fn.parity.torch_side import record
from resnet_fn.parity.torch_side.record import record_torch

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)


def test_a_modules_layers_are_the_same_kinds(torch):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU6(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    ).eval()
    layers = record_torch(net, IMAGES, True)
    assert [layer.kind for layer in layers] == ["conv", "norm", "relu6", "flatten", "dense"]
    assert layers[1].parameters == (("weight", (4,)), ("bias", (4,)), ("running_mean", (4,)), ("running_var", (4,)))
    np.testing.assert_allclose(layers[1].output.mean((0, 2, 3)), 0, atol=1e-6)
    assert not net.training
    assert not net[1].running_mean.any()


def test_inputs_may_be_a_tuple_or_a_dict_of_any_numbers(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(5, 4)
            self.lstm = torch.nn.LSTM(4, 3, batch_first=True)

        def forward(self, ids, mask):
            return self.lstm(self.embed(ids) * mask[..., None])

    ids, mask = np.array([[1, 2], [3, 0]]), np.array([[True, True], [True, False]])
    net = Net()
    by_place = record_torch(net, (ids, mask), False)
    by_name = record_torch(net, {"mask": mask, "ids": ids}, False)
    for embed, lstm in (by_place, by_name):
        np.testing.assert_array_equal(embed.input, ids)
        assert (embed.kind, lstm.kind, lstm.leaf, lstm.output.shape) == ("embedding", "lstm", True, (2, 2, 3))
    np.testing.assert_array_equal(by_place[1].output, by_name[1].output)


def test_transformers_run_layer_by_layer_in_evaluation_mode_too(torch):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 1))
    tokens = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    names = [entry.name for entry in record_torch(net.eval(), tokens, False)]
    assert names[:4] == ["0.layers.0.self_attn", "0.layers.0.dropout1", "0.layers.0.norm1", "0.layers.0.linear1"]
    attention = record_torch(net, tokens, False)[0]
    assert dict(attention.parameters)["out_proj.weight"] == (8, 8)
    assert len(attention.further) == 2


def test_which_arrays_are_what(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight
            self.norm = torch.nn.BatchNorm1d(4)
            self.norm.weight.requires_grad = False
            self.register_buffer("positions", torch.arange(3))

    net = Net()
    assert record.tied(net) == [("embed.weight", "head.weight")]
    assert record.trainable(net) == ["embed.weight", "head.weight", "norm.bias"]
    assert record.constants(net) == ["positions", "norm.num_batches_tracked"]


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
    record_torch(net, IMAGES, True)
    assert not net.norm.running_mean.any()
