"""What a net takes and holds: None among its inputs, complex weights, integer buffers."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, ops

from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import (
    ADAMW,
    SGD,
    agrees,
    draw,
    labels,
    ladder_of,
    ones,
    ours,
    t,
    theirs,
    torch,
    vectors,
)


@pytest.mark.parametrize("named", [False, True])
def test_none_among_the_inputs_reaches_both_nets(named):
    def forward(self, x, mask=None, scale=None):
        if mask is not None:
            x = x * mask
        if scale is None:
            return self.head(x)
        return self.head(x) * scale

    def batch():
        inputs = {"x": draw(6, 8), "mask": None, "scale": draw(6, 3)}
        return inputs if named else tuple(inputs.values()), labels(6)

    agrees(ours(forward), theirs(forward), [batch(), batch()], mode="graph")


def their_filter():
    """A filter of frequencies, as of a Fourier neural operator."""

    def forward(self, x):
        return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8))

    return theirs(forward, weight=t.Parameter(torch.randn(5, dtype=torch.complex64)))


def our_filter(sign):
    """Holds both parts of each complex weight, and computes with cosines and sines."""
    angle = 2 * np.pi * np.outer(np.arange(8), np.arange(5)) / 8
    back = np.array([1, 2, 2, 2, 1])[:, None] / 8
    cos, sin = (Tensor(np.float32(wave(angle))) for wave in (np.cos, np.sin))
    back_cos, back_sin = (Tensor(np.float32(back * wave(angle.T))) for wave in (np.cos, np.sin))

    def construct(self, x):
        real, imag = ops.matmul(x, cos), -ops.matmul(x, sin)
        a, b = self.weight[:, 0], sign * self.weight[:, 1]
        real, imag = real * a - imag * b, real * b + imag * a
        return self.head(ops.matmul(real, back_cos) - ops.matmul(imag, back_sin))

    return ours(construct, weight=ones(5, 2))


@pytest.mark.parametrize(("recipe", "sign"), [(SGD, 1.0), (ADAMW, 1.0), (SGD, -1.0)])
def test_complex_weights_are_pairs_of_real_ones(recipe, sign):
    ladder = ladder_of(our_filter(sign), their_filter(), vectors(3), recipe)
    if sign > 0:
        assert ladder.agrees, table(ladder)
    else:
        assert title_of_stage(ladder.first_stage) == "eval forward"


@pytest.mark.parametrize("by", [1, 2])
def test_a_large_counter_off_by_one_is_found(by):
    def forward(self, x):
        if self.training:
            self.seen += 1
        return self.head(x)

    def construct(self, x):
        if self.training:
            ops.assign(self.seen, self.seen + by)
        return self.head(x)

    module = theirs(forward, seen=t.Buffer(torch.full((2,), 1_000_000)))
    seen = Parameter(Tensor([1_000_000] * 2, mindspore.int32), requires_grad=False)
    ladder = ladder_of(ours(construct, seen=seen), module, vectors())
    assert ladder.agrees == (by == 1), table(ladder)
