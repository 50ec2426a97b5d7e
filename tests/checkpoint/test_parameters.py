"""Parameters and arrays: by exact names and shapes, every bit, or an error that lists what does not fit."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn.checkpoint.folder import CheckpointError
from resnet_fn.checkpoint.parameters import assign_all

pytestmark = pytest.mark.usefixtures("device")


def test_another_net_is_refused_by_name():
    """Exact equality of names and shapes: nothing missing, nothing extra, nothing matched by its ending."""
    parameters = [Parameter(Tensor(np.zeros((10, 4), np.float32)), name=name) for name in ("fc.weight", "fc.extra")]
    given = {"fc.weight": np.ones((11, 4), np.float32), "net.fc.extra": np.ones((10, 4), np.float32)}
    with pytest.raises(CheckpointError) as caught:
        assign_all(parameters, given, "here")
    assert str(caught.value) == (
        "here: belongs to another net (missing: fc.extra; unexpected: net.fc.extra; "
        "of another shape: fc.weight (11, 4) instead of (10, 4)); give the net or recipe it was saved with"
    )
    assert not parameters[0].asnumpy().any()
