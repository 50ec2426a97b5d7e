"""What PyTorch's side of time-to-accuracy calls accuracy; test_accuracy.py runs it whole."""

import numpy as np
import pytest

from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch")
from resnet_fn.benchmark import torch_digits  # noqa: E402 (it needs torch)


def test_accuracy_is_of_every_test_image_once():
    """Of a net that always says three: the share of threes."""
    digits = open_dataset(recipe("digits"))
    labels = np.asarray(digits.test.labels)

    class AlwaysThree(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            assert images.shape == (len(labels), 1, 16, 16)
            return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float()

    assert torch_digits.evaluate(AlwaysThree(), digits) == pytest.approx((labels == 3).mean())
