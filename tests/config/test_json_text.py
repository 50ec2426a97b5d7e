"""NaN and infinity become null at any depth; everything else keeps its value."""

import json
import math

import numpy as np

from resnet_fn.config.hints import finite_or_null


def test_what_is_not_finite_is_null_at_any_depth():
    value = {"a": math.nan, "b": [1.5, -math.inf, {"c": (math.inf, 2)}], "d": np.float64("nan")}
    expected = '{"a": null, "b": [1.5, null, {"c": [null, 2]}], "d": null}'
    assert json.dumps(finite_or_null(value), allow_nan=False) == expected


def test_other_values_are_kept():
    value = {"text": "nan", "whole": 2**70, "none": None, "true": True, "tiny": 5e-324, "list": []}
    assert finite_or_null(value) == value
    assert value["list"] == []
