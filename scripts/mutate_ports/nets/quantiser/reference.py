"""Vector quantisation whose codebook is a moving average, as in VQ-VAE-2 and Encodec."""

import torch
from torch import nn
from torch.nn import functional as F


class Codebook(nn.Module):
    def __init__(self, codes=8, width=4, decay=0.9, eps=1e-5):
        super().__init__()
        self.codes, self.decay, self.eps = codes, decay, eps
        embed = torch.randn(codes, width)
        self.register_buffer("embed", embed)
        self.register_buffer("size", torch.ones(codes))
        self.register_buffer("total", embed.clone())

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        apart = (flat**2).sum(1, keepdim=True) - 2 * flat @ self.embed.t() + (self.embed**2).sum(1)
        index = apart.argmin(1)
        chosen = F.one_hot(index, self.codes).to(flat.dtype)
        quantised = (chosen @ self.embed).reshape(x.shape)
        if self.training:
            with torch.no_grad():
                self.size.mul_(self.decay).add_(chosen.sum(0), alpha=1 - self.decay)
                self.total.mul_(self.decay).add_(chosen.t() @ flat, alpha=1 - self.decay)
                whole = self.size.sum()
                smooth = (self.size + self.eps) / (whole + self.codes * self.eps) * whole
                self.embed.copy_(self.total / smooth[:, None])
        commitment = ((quantised.detach() - x) ** 2).mean()
        return x + (quantised - x).detach(), commitment, index


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(2, 8, 4, 2, 1)
        self.inside = nn.Conv1d(8, 4, 3, 1, 1)
        self.codebook = Codebook()
        self.outside = nn.Conv1d(4, 8, 3, 1, 1)
        self.up = nn.ConvTranspose1d(8, 2, 4, 2, 1)

    def forward(self, x):
        hidden = self.inside(torch.relu(self.down(x)))
        quantised, commitment, _ = self.codebook(hidden.transpose(1, 2))
        out = self.up(torch.relu(self.outside(quantised.transpose(1, 2))))
        return out, commitment


def loss(outputs, labels):
    out, commitment = outputs
    return F.mse_loss(out, labels) + 0.25 * commitment


def build():
    return Net()
