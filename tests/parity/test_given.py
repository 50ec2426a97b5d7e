"""What a net takes and holds: None among its inputs, complex weights, integer buffers."""

from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import ADAMW, SGD, draw, labels, torch

t = torch.nn


def compared(net: nn.Cell, module: Any, batches: Any, recipe: Any = SGD, **options: Any) -> Any:
    return compare_step(net, module, batches, recipe, quick=True, initialisation=False, **options)


class TheirMask(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = t.Linear(8, 3)

    def forward(self, x: Any, mask: Any = None, scale: Any = None) -> Any:
        x = x if mask is None else x * mask
        return self.head(x) if scale is None else self.head(x) * scale


class OurMask(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Dense(8, 3)

    def construct(self, x: Any, mask: Any = None, scale: Any = None) -> Any:
        if mask is not None:
            x = x * mask
        if scale is None:
            return self.head(x)
        return self.head(x) * scale


@pytest.mark.parametrize("mode", ["pynative", "graph"])
@pytest.mark.parametrize("named", [False, True])
def test_none_among_the_inputs_reaches_both_nets(mode, named):
    batches = []
    for _ in range(2):
        x, scale = draw(6, 8), draw(6, 3)
        given = {"x": x, "mask": None, "scale": scale} if named else (x, None, scale)
        batches.append((given, labels(6)))
    ladder = compared(OurMask(), TheirMask(), batches, mode=mode)
    assert ladder.agrees, table(ladder)


class TheirFilter(t.Module):
    """A filter of frequencies, as of a Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = t.Parameter(torch.randn(5, dtype=torch.complex64))
        self.head = t.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8))


class OurFilter(nn.Cell):
    """Holds both parts of each complex weight, and computes with cosines and sines."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros((5, 2), np.float32)))
        self.head, self.sign = nn.Dense(8, 3), sign
        angle = 2 * np.pi * np.outer(np.arange(8), np.arange(5)) / 8
        times = np.array([1, 2, 2, 2, 1]) / 8
        self.cos, self.sin = (Tensor(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
        self.back_cos = Tensor((times * np.cos(angle)).T.astype(np.float32))
        self.back_sin = Tensor((times * np.sin(angle)).T.astype(np.float32))

    def construct(self, x: Any) -> Any:
        real, imag = ops.matmul(x, self.cos), -ops.matmul(x, self.sin)
        a, b = self.weight[:, 0], self.sign * self.weight[:, 1]
        real, imag = real * a - imag * b, real * b + imag * a
        return self.head(ops.matmul(real, self.back_cos) - ops.matmul(imag, self.back_sin))


@pytest.mark.parametrize("recipe", [SGD, ADAMW])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_complex_weights_are_pairs_of_real_ones(recipe, sign):
    batches = [(draw(6, 8), labels(6)) for _ in range(3)]
    ladder = compared(OurFilter(sign), TheirFilter(), batches, recipe, mode="pynative")
    if sign > 0:
        assert ladder.agrees, table(ladder)
    else:
        assert title_of_stage(ladder.first_stage) == "eval forward"


class TheirCounter(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = t.Linear(8, 3)
        self.register_buffer("seen", torch.full((2,), 1_000_000))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.seen += 1
        return self.head(x)


class OurCounter(nn.Cell):
    def __init__(self, by: int) -> None:
        super().__init__()
        self.head, self.by = nn.Dense(8, 3), by
        self.seen = Parameter(Tensor([1_000_000] * 2, mindspore.int32), requires_grad=False)

    def construct(self, x: Any) -> Any:
        if self.training:
            ops.assign(self.seen, self.seen + self.by)
        return self.head(x)


@pytest.mark.parametrize("by", [1, 2])
def test_a_large_counter_off_by_one_is_found(by):
    batches = [(draw(6, 8), labels(6)) for _ in range(2)]
    ladder = compared(OurCounter(by), TheirCounter(), batches, mode="pynative")
    assert ladder.agrees == (by == 1), table(ladder)
