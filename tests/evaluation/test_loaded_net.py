"""A net from a checkpoint; one whose weights are not finite is refused wherever it would be used."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from resnet_fn import train
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import recipe_from_dict
from resnet_fn.evaluate import main as evaluate
from resnet_fn.evaluation.loaded_net import load_net
from resnet_fn.inspect.__main__ import main as inspect_main
from resnet_fn.predict import main as predict

RUN = Path(__file__).parents[1] / "checkpoint" / "fixtures" / "run-before-rooms"

pytestmark = pytest.mark.usefixtures("device")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def poisoned():
    """A run whose checkpoint vouches for a NaN among its weights: what no save of ours writes, but a file may hold."""
    shutil.copytree(RUN, "run")
    step = Path("run/checkpoints/step-00000005")
    data = bytearray((step / "weights.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:start])["fc.bias"]["data_offsets"]
    data[start + begin : start + begin + 4] = np.float32(np.nan).tobytes()
    (step / "weights.safetensors").write_bytes(data)
    manifest = json.loads((step / "manifest.json").read_text())
    manifest["files"]["weights.safetensors"]["tensors"]["fc.bias"]["sha256"] = sha256(data[start + begin : start + end])
    del manifest["sha256"]
    manifest["sha256"] = sha256(json.dumps(manifest, sort_keys=True).encode())
    (step / "manifest.json").write_text(json.dumps(manifest))
    return step


def test_a_checkpoint_that_is_not_finite_is_refused(poisoned, capsys):
    recipe = recipe_from_dict(json.loads((poisoned / "state.json").read_text())["recipe"])
    Path("image.png").write_bytes(b"is not even looked at")
    message = (
        f"{poisoned}: not finite: 1 of 10 values of fc.bias; give other weights "
        "(--allow-non-finite takes them where nothing is trained)"
    )
    for use in (
        lambda: load_net("run"),
        lambda: evaluate(["--checkpoint", "run"]),
        lambda: predict(["--checkpoint", "run", "image.png"]),
        lambda: train(recipe, RunOptions(out_dir="run", progress=False)),
    ):
        with pytest.raises(ValueError) as caught:
            use()
        assert str(caught.value) == message
    assert np.isnan(load_net("run", allow_non_finite=True).net.fc.bias.asnumpy()).sum() == 1
    assert evaluate(["--checkpoint", "run", "--allow-non-finite"]) == 0


def test_inspect_reports_it(poisoned, capsys):
    assert inspect_main(["run"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("fc.bias"))
    assert line.endswith("1 NOT FINITE")
    assert inspect_main(["run", "--activations"]) == 0
