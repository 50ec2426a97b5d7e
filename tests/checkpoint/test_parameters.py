"""Parameters and arrays: by exact names and shapes, every bit, or an error that lists what does not fit."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn.checkpoint.folder import CheckpointError
from resnet_fn.checkpoint.parameters import assign_all, copy_arrays

pytestmark = pytest.mark.usefixtures("device")


def test_another_net_is_refused_by_name():
    """Exact equality of names and shapes: nothing missing, nothing extra, nothing matched by its ending."""
    parameters = [Parameter(Tensor(np.zeros((10, 4), np.float32)), name=name) for name in ("fc.weight", "fc.extra")]
    given = {"fc.weight": np.ones((11, 4), np.float32), "net.fc.extra": np.ones((10, 4), np.float32)}
    with pytest.raises(CheckpointError) as caught:
        assign_all(parameters, given, "here")
    assert str(caught.value) == (
        "here: belongs to another net (missing: fc.extra; unexpected: net.fc.extra; "
        "of another shape: fc.weight (11, 4) instead of (10, 4)); give the recipe it was saved with"
    )
    assert not parameters[0].asnumpy().any()


def test_copies_are_used_again():
    parameter = Parameter(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), name="w")
    first = copy_arrays([parameter])
    assert first["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assign_all([parameter], {"w": np.full((2, 3), 7, np.float32)}, "here")
    assert first["w"].sum() == 15, "a copy, not the Parameter's own memory"
    second = copy_arrays([parameter], first)
    assert second["w"] is first["w"]
    assert second["w"].sum() == 42
