"""What a net must be fed goes through a checkpoint's JSON and comes back."""

import json

import numpy as np

from resnet_fn.data.input_spec import InputSpec, renamed
from resnet_fn.data.sources.files import color_spec


def test_json_and_back_is_the_same():
    spec = color_spec("imagefolder", ["bee", "éléphant"], (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert InputSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_moments_are_float32():
    mean, std = color_spec("x", ["a"], (0.1, 0.2, 0.3), (1, 2, 3)).moments
    assert mean.dtype == std.dtype == np.float32
    assert (mean.tolist(), std.tolist()) == (np.float32([0.1, 0.2, 0.3]).tolist(), [1, 2, 3])


def test_classes_that_have_changed_are_named_by_place():
    assert renamed(["a", "b", "c"], ["a", "c", "b", "d"]) == "'b' → 'c', 'c' → 'b', None → 'd'"
    assert renamed(["a"], ["a"]) == ""
