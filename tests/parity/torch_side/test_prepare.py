"""What is done to a reference before it is recorded."""

from resnet_fn.parity.torch_side.prepare import prepare_reference
from resnet_fn.parity.traces.batches import make_batches

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


def test_weights_of_zeros_are_drawn_and_biases_and_frozen_ones_kept(torch):
    net = torch.nn.Linear(400, 300)
    net.gate = torch.nn.Parameter(torch.zeros(500))
    net.table = torch.nn.Parameter(torch.zeros(4, 4), requires_grad=False)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    prepare_reference(net, torch.zeros(1, 400).numpy(), 0)
    assert abs(float(net.weight.detach().std()) * 400**0.5 - 1) < 0.02
    assert abs(float(net.gate.detach().std()) / 0.2 - 1) < 0.1
    assert not net.bias.any()
    assert not net.table.any()
