"""What only decides how a run is computed is checked as well."""

import pytest

from resnet_fn.config.fields import changed
from resnet_fn.config.options import RunOptions


def test_options_are_checked_too():
    with pytest.raises(ValueError, match="keep_last: 1 is too small; give 2 or more"):
        RunOptions(keep_last=1)
    with pytest.raises(ValueError, match="device: 'GPU' is unknown; use one of CPU, Ascend"):
        RunOptions(device="GPU")


def test_fast_math_is_refused_where_it_would_change_nothing():
    assert changed(RunOptions(), fast_math=True, device="Ascend").fast_math
    with pytest.raises(
        ValueError, match="fast_math: True needs --device Ascend; on a CPU kernels repeat to the bit as they are"
    ):
        RunOptions(fast_math=True)
