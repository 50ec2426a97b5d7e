"""An update that is not finite: its samples are named.

(Ranks and files: faults/test_launcher.py.)
"""

import numpy as np
import pytest

from resnet_fn.run.failures import suspect_samples


@pytest.mark.parametrize("shape", [(1, 2, 2), (4,), ()])
def test_samples_that_are_not_finite_are_named_alone(shape):
    images, indices = np.zeros((3, *shape), np.float32), np.array([7, 1, 4])
    assert suspect_samples(images, indices) == "7 1 4"
    images.reshape(3, -1)[1, -1] = np.inf
    assert suspect_samples(images, indices) == "1"
