"""Plans for one net that is computed in several ways, and the result of one way."""

from typing import Any

import numpy as np
import pytest

from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.ways.ways import Options, results


def texts() -> Any:
    """Four texts of other lengths: ids, of which 0 is padding, and a mask."""
    mask = np.arange(6) < np.array([6, 4, 3, 5])[:, None]
    ids = np.where(mask, np.random.randint(1, 20, (4, 6)), 0).astype(np.int32)
    return {"ids": ids, "mask": mask}, np.random.randint(0, 3, 4).astype(np.int32)


@pytest.fixture
def plan() -> Any:
    """plan(make): three updates with the batch that this makes, by default vectors."""
    from small_nets import SGD, vector

    return lambda make=vector, **options: plan_of(SGD, [make()] * 3, **options)


@pytest.fixture
def plan_of_texts(plan: Any) -> Any:
    return plan(texts)


@pytest.fixture
def result() -> Any:
    """result(way, net): the result of one way."""

    def compare(way: str, net: Any, **options: Any) -> Any:
        (compared,) = results(net, Options(only=[way], **options))
        return compared

    return compare
