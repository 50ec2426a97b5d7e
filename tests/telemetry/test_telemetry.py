"""What a run's log holds."""

import json

from resnet_fn.telemetry.telemetry import Telemetry


def test_a_norm_that_is_not_finite_is_null_in_the_log(tmp_path):

    event = {"event": "train", "update": 1, "loss": float("nan"), "accuracy": 0.0, "lr": 0.1, "images_per_second": 1.0}
    with Telemetry(tmp_path, 0, 1, progress=False) as telemetry:
        telemetry.advance(0, 1, {**event, "norms": {"gradient": {"fc": float("inf")}}})
    (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert row["loss"] is None
    assert row["norms"] == {"gradient": {"fc": None}}
