"""A tagger: an LSTM in both directions, with a penalty for improbable pairs of tags."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal


class Net(nn.Cell):
    def __init__(self, words=15, width=8, tags=4):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0, embedding_table=Normal(1.0, 0.0))
        self.drop = nn.Dropout(p=0.3)
        self.forwards = nn.LSTM(width, 8, batch_first=True)
        self.backwards = nn.LSTM(width, 8, batch_first=True)
        self.head = nn.Dense(16, tags)
        self.pairs = Parameter(Tensor(np.zeros((tags, tags), np.float32)))
        frequent = np.array([0.4, 0.3, 0.2, 0.1], np.float32)
        self.prior = Parameter(Tensor(np.log(frequent)), requires_grad=False)

    def construct(self, ids, mask):
        x = self.drop(self.embed(ids) * mask.expand_dims(-1))
        first, _ = self.forwards(x)
        second, _ = self.backwards(ops.flip(x, (1,)))
        x = ops.cat([first, ops.flip(second, (1,))], -1) * mask.expand_dims(-1)
        logits = self.head(self.drop(x)) + self.prior
        before = ops.matmul(ops.softmax(logits[:, :-1], -1), self.pairs)
        return ops.cat([logits[:, :1], logits[:, 1:] + before], 1)


def loss(outputs, labels):
    return ops.cross_entropy(outputs.swapaxes(1, 2), labels, ignore_index=-100)


def build():
    return Net()
