"""TensorBoard's writer must not cost a training the import of PyTorch."""

import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import sys
from resnet_fn.telemetry.board import SummaryWriter
assert "torch" not in sys.modules
with SummaryWriter("run") as writer:
    writer.add_scalar("name", 1.0, 1)
assert "torch" not in sys.modules
import torch
print(torch.answer)
"""


def test_it_writes_without_loading_pytorch_which_stays_importable(tmp_path):
    """A stand-in that would be found where PyTorch is: what counts is that nobody asks for it."""
    (tmp_path / "torch.py").write_text("answer = 42")
    Path("script.py").write_text(_SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
    assert len(list(Path("run").glob("events.out.tfevents.*"))) == 1
