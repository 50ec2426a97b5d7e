"""Pixels to a net's input, against the equations and torchvision's bits."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.data.images import normalise, prepare
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.data.sources.files import color_spec

DIGITS = load_digits()


def test_prepare_normalises_and_resizes():
    spec = dataclasses.replace(DIGITS.input, mean=(0.5,), std=(0.25,))
    flat = prepare(np.full((1, 8, 8, 1), 16, np.uint8), 16, spec)
    np.testing.assert_allclose(flat, 2.0, rtol=1e-6)
    ramp = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1).repeat(4, axis=1)
    doubled = prepare(ramp, 8, dataclasses.replace(spec, full_scale=1.0, mean=(0.0,), std=(1.0,)))[0, 0, 3]
    # half-pixel centres: target i lies at (i + 1/2) / 2 − 1/2, clamped at the border
    np.testing.assert_allclose(doubled, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-6)


def test_normalisation_is_torchvisions_bit_for_bit():
    torch = pytest.importorskip("torch")
    planes = np.random.default_rng(0).integers(0, 256, (4, 3, 24, 24), dtype=np.uint8)
    mean, std = np.array((0.485, 0.456, 0.406), np.float32), np.array((0.229, 0.224, 0.225), np.float32)
    spec = color_spec("", (), mean.tolist(), std.tolist())
    ours = normalise(planes, spec, np.empty(planes.shape, np.float32))
    theirs = torch.from_numpy(planes).float().div(255)
    theirs = theirs.sub_(torch.from_numpy(mean)[:, None, None]).div_(torch.from_numpy(std)[:, None, None])
    assert ours.tobytes() == theirs.numpy().tobytes()
