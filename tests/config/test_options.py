"""What only decides how a run is computed is checked as well."""

import pytest

from resnet_fn.config.options import RunOptions


def test_options_are_checked_too():
    with pytest.raises(ValueError, match="keep_last: 1 would lose the run"):
        RunOptions(keep_last=1)
    with pytest.raises(ValueError, match="device: 'GPU' is unknown; use one of CPU, Ascend"):
        RunOptions(device="GPU")
