"""What only decides how a run is computed is checked as well."""

import pytest

from resnet_fn.config.fields import changed, faults
from resnet_fn.config.options import RunOptions


def test_options_are_checked_too():
    with pytest.raises(ValueError, match="keep_last: 1 would lose the run"):
        RunOptions(keep_last=1)
    with pytest.raises(ValueError, match="device: 'GPU' is unknown; use one of CPU, Ascend"):
        RunOptions(device="GPU")


def test_fast_math_is_refused_where_it_would_change_nothing():
    assert faults(changed(RunOptions(), {"fast_math": True, "device": "Ascend"})) == []
    with pytest.raises(
        ValueError, match="fast_math: True needs --device Ascend; on a CPU kernels repeat to the bit as they are"
    ):
        RunOptions(fast_math=True)
