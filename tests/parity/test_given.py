"""What a net takes and holds: None among its inputs, complex weights, integer buffers."""

from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import ADAMW, SGD, agrees, draw, labels, ladder_of, ours, t, theirs, torch, vector


@pytest.mark.parametrize("named", [False, True])
def test_none_among_the_inputs_reaches_both_nets(named):
    def forward(self: Any, x: Any, mask: Any = None, scale: Any = None) -> Any:
        if mask is not None:
            x = x * mask
        if scale is None:
            return self.head(x)
        return self.head(x) * scale

    batches = []
    for _ in range(2):
        x, scale = draw(6, 8), draw(6, 3)
        given = {"x": x, "mask": None, "scale": scale} if named else (x, None, scale)
        batches.append((given, labels(6)))
    agrees(ours(forward), theirs(forward), batches, mode="graph")


def their_filter() -> Any:
    """A filter of frequencies, as of a Fourier neural operator."""

    def forward(self: Any, x: Any) -> Any:
        return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8))

    return theirs(forward, weight=t.Parameter(torch.randn(5, dtype=torch.complex64)))


def our_filter(sign: float) -> nn.Cell:
    """Holds both parts of each complex weight, and computes with cosines and sines."""
    angle = 2 * np.pi * np.outer(np.arange(8), np.arange(5)) / 8
    times = np.array([1, 2, 2, 2, 1]) / 8
    cos, sin = (Tensor(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    back_cos, back_sin = (Tensor((times * f(angle)).T.astype(np.float32)) for f in (np.cos, np.sin))

    def construct(self: Any, x: Any) -> Any:
        real, imag = ops.matmul(x, cos), -ops.matmul(x, sin)
        a, b = self.weight[:, 0], sign * self.weight[:, 1]
        real, imag = real * a - imag * b, real * b + imag * a
        return self.head(ops.matmul(real, back_cos) - ops.matmul(imag, back_sin))

    return ours(construct, weight=Parameter(Tensor(np.zeros((5, 2), np.float32))))


@pytest.mark.parametrize(("recipe", "sign"), [(SGD, 1.0), (ADAMW, 1.0), (SGD, -1.0)])
def test_complex_weights_are_pairs_of_real_ones(recipe, sign):
    ladder = ladder_of(our_filter(sign), their_filter(), [vector() for _ in range(3)], recipe)
    if sign > 0:
        assert ladder.agrees, table(ladder)
    else:
        assert title_of_stage(ladder.first_stage) == "eval forward"


@pytest.mark.parametrize("by", [1, 2])
def test_a_large_counter_off_by_one_is_found(by):
    def forward(self: Any, x: Any) -> Any:
        if self.training:
            self.seen += 1
        return self.head(x)

    def construct(self: Any, x: Any) -> Any:
        if self.training:
            ops.assign(self.seen, self.seen + by)
        return self.head(x)

    module = theirs(forward)
    module.register_buffer("seen", torch.full((2,), 1_000_000))
    seen = Parameter(Tensor([1_000_000] * 2, mindspore.int32), requires_grad=False)
    ladder = ladder_of(ours(construct, seen=seen), module, [vector(), vector()])
    assert ladder.agrees == (by == 1), table(ladder)
