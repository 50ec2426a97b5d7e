"""The doctor's checks notice the arithmetic that they are for."""

import re

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.doctor import arithmetic

pytestmark = pytest.mark.usefixtures("device")


def test_a_copy_that_loses_unaligned_bytes_is_found(monkeypatch):
    ok, text = arithmetic.transfer()
    assert ok
    assert re.fullmatch(r"0 of \d+ arrays come back changed", text)
    real = arithmetic.Tensor
    monkeypatch.setattr(
        arithmetic, "Tensor", lambda a: real(a if a.ctypes.data % 64 == 0 else np.zeros_like(a))
    )
    ok, text = arithmetic.transfer()
    assert not ok
    assert re.fullmatch(r"[1-9]\d* of \d+ arrays come back changed", text)


def test_an_inverted_momentum_is_found(monkeypatch):
    assert arithmetic.batchnorm() == (True, "a batch has weight 0.1 in the moving mean")
    monkeypatch.setattr(
        arithmetic, "batch_norm", lambda channels: nn.BatchNorm2d(channels, momentum=0.1)
    )
    assert arithmetic.batchnorm() == (False, "a batch has weight 0.9 in the moving mean")


def test_an_ignored_nesterov_is_found(monkeypatch):
    assert arithmetic.nesterov()[0]
    real = arithmetic.momentum_sgd
    monkeypatch.setattr(
        arithmetic, "momentum_sgd", lambda groups, momentum, nesterov: real(groups, momentum, False)
    )
    ok, text = arithmetic.nesterov()
    assert not ok
    assert text.endswith("from float64 after two updates")


def test_a_convolution_below_float32_is_found(monkeypatch):
    class Half(nn.Cell):
        def __init__(self, *arguments):
            super().__init__()
            self.exact = nn.Conv2d(*arguments, pad_mode="pad", padding=1)
            self.weight = self.exact.weight

        def construct(self, x):
            return self.exact(x.astype(mindspore.float16).astype(mindspore.float32))

    monkeypatch.setattr(arithmetic, "conv", Half)
    ok, text = arithmetic.convolution()
    assert not ok
    assert re.match("relative error [123]e-04,", text)


def test_an_unnoticed_overflow_is_found(monkeypatch):
    assert arithmetic.overflow() == (True, "300² in float16 is infinity; overflow noticed: yes")

    def all_finite(tensors):
        return ops.depend(mindspore.Tensor(np.array(True)), tensors)

    monkeypatch.setattr(mindspore.amp, "all_finite", all_finite)
    assert arithmetic.overflow() == (False, "300² in float16 is infinity; overflow noticed: no")
