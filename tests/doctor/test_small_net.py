"""The carried trace is what PyTorch computes, of the net beside it, and is small."""

from pathlib import Path

import numpy as np
import pytest

import resnet_fn
from resnet_fn.parity.trace_folder import load_recording

TRACE = Path(resnet_fn.__file__).parent / "doctor" / "trace"


def test_it_is_small_and_whole():
    assert sum(path.stat().st_size for path in TRACE.iterdir()) < 700_000
    recording = load_recording(TRACE)  # checks each file's hash
    assert recording.framework.startswith("PyTorch 2.")
    assert len(recording.trace.losses) == 5
    assert len(recording.layers["train"]) == 24
    assert recording.rounding  # how far PyTorch's own float32 is from float64


def test_it_is_what_pytorch_computes():
    torch = pytest.importorskip("torch", reason="holds the trace against an installed PyTorch")
    from resnet_fn.doctor.small_net import reference

    recording = load_recording(TRACE)
    net = reference().eval()
    start = {name: torch.from_numpy(array) for name, array in recording.trace.start.items()}
    counts = {name: value for name, value in net.state_dict().items() if name.endswith("num_batches_tracked")}
    net.load_state_dict({**counts, **start})
    with torch.no_grad():
        logits = net(torch.from_numpy(recording.task.batches[0][0])).numpy()
    expected = next(iter(recording.trace.eval_outputs.values()))
    assert np.linalg.norm(logits - expected) <= 1e-5 * np.linalg.norm(expected)
