"""Batches and plans for one net that is computed in several ways."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.ways.ways import Options, results
from resnet_fn.recipes import recipe

SGD = dataclasses.replace(recipe("digits"), clip_norm=0.0, label_smoothing=0.0, learning_rate=0.02)
LENGTHS = (6, 4, 3, 5)


def vectors(features: int = 8) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, features)).astype(np.float32)
    return x, rng.integers(0, 3, 4).astype(np.int32)


def images() -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3, 8, 8)).astype(np.float32)
    return x, rng.integers(0, 3, 4).astype(np.int32)


def texts() -> Any:
    """Four texts of other lengths: ids, of which 0 is padding, and a mask."""
    rng = np.random.default_rng(0)
    mask = np.arange(6) < np.array(LENGTHS)[:, None]
    ids = np.where(mask, rng.integers(1, 20, (4, 6)), 0).astype(np.int32)
    return {"ids": ids, "mask": mask}, rng.integers(0, 3, 4).astype(np.int32)


@pytest.fixture
def batches() -> dict[str, Any]:
    return {"images": images(), "texts": texts()}


@pytest.fixture
def plan() -> Any:
    """plan(batch): three updates with this batch, or with vectors."""

    def make(batch: Any = None, custom_loss: bool = False) -> Plan:
        return plan_of(SGD, [batch or vectors()] * 3, custom_loss=custom_loss)

    return make


@pytest.fixture
def result() -> Any:
    """result(way, net): the result of one way."""

    def compare(way: str, net: Any, **options: Any) -> Any:
        (one,) = results(net, Options(only=[way], **options))
        return one

    return compare
