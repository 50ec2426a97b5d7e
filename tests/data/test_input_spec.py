"""What a net must be fed goes through a checkpoint's JSON and comes back."""

import json

import numpy as np

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.files import color_spec


def test_json_and_back_is_the_same():
    spec = color_spec("imagefolder", ["bee", "éléphant"], (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert InputSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    earlier = {key: value for key, value in spec.to_dict().items() if key not in ("data_dir", "train_list", "val_list")}
    assert InputSpec.from_dict(earlier) == InputSpec.from_dict({**earlier, "scan_cache": "off"}) == spec


def test_moments_are_float32():
    mean, std = color_spec("x", ["a"], (0.1, 0.2, 0.3), (1, 2, 3)).moments
    assert mean.dtype == std.dtype == np.float32
    assert (mean.tolist(), std.tolist()) == (np.float32([0.1, 0.2, 0.3]).tolist(), [1, 2, 3])
