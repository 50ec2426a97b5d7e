"""Several workers without compiled functions, which MindSpore announces as the only way after 2.11."""

import numpy as np
import pytest

FLAGS = ("--model", "resnet8", "--image-size", "16", "--batch-size", "240", "--epochs", "1", "--log-every", "1")


@pytest.mark.slow
def test_two_workers_compute_uncompiled_what_they_compute_compiled(python, events):
    losses = []
    for mode in ("graph", "pynative"):
        options = ("--mode", mode, "--threads", "1", "--no-progress", "--out-dir", mode)
        python("-m", "resnet_fn.launch", "--workers", "2", "--log-dir", f"logs-{mode}", "--", *FLAGS, *options)
        losses.append([(event["loss"], event["grad_norm"]) for event in events(mode, "train")])
    assert len(losses[0]) == 5
    np.testing.assert_allclose(losses[1][0], losses[0][0], rtol=1e-6)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)  # rounding grows from update to update
