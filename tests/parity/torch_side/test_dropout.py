"""Nothing is dropped inside, and everything is as it was after."""

from resnet_fn.parity.torch_side.dropout import without_dropout


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
        }
    ).train()
    x = torch.randn(2, 3, 4)
    with without_dropout(net) as found:
        assert found == ["drop: p=0.5", "attn: dropout=0.1", "lstm: dropout=0.3", "path: drop_prob=0.2"]
        assert torch.equal(net["drop"](x), x)
        assert torch.equal(net["attn"](x, x, x)[0], net["attn"](x, x, x)[0])
        assert torch.equal(net["lstm"](x)[0], net["lstm"](x)[0])
    assert (net["drop"].p, net["attn"].dropout, net["lstm"].dropout, net["path"].drop_prob) == (0.5, 0.1, 0.3, 0.2)
    assert not torch.equal(net["drop"](x), x)
