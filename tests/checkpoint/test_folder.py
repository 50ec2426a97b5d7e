import hashlib
import json

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import CheckpointError, load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder

STATE = {"update": 7, "epoch": 1, "best": None, "last": None}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "layer1.0.conv1.weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "scaler.scale": np.float32(65536).reshape(()),
        "half": rng.normal(size=5).astype(np.float16),
        "empty": np.zeros((0, 3), np.float32),
        "counts": np.arange(4, dtype=np.int32),
    }


def write(folder, update=7, seed=0):
    state = {**STATE, "update": update}
    return write_checkpoint(folder / f"step-{update:08d}", arrays(seed), arrays(seed + 1), state)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poisoned_state_is_never_saved(tmp_path, raises_line, poison):
    write(tmp_path, 1)
    poisoned = arrays()
    poisoned["layer1.0.conv1.weight"][1, 2, 0, 0] = poison
    for weights, training in ((poisoned, arrays()), (arrays(), poisoned)):
        with raises_line(
            "was not saved, because layer1.0.conv1.weight contains NaN or infinity",
            kind=CheckpointError,
        ):
            write_checkpoint(tmp_path / "step-00000002", weights, training, STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_values_whose_sum_overflows_are_saved(tmp_path):
    wide = {"a": np.full(9, 3e38, np.float32), "b": np.full(9, 60000, np.float16)}
    folder = write_checkpoint(tmp_path / "step-00000001", wide, {}, STATE)
    assert np.array_equal(load_checkpoint(folder).weights["a"], wide["a"])


def test_a_save_that_fails_leaves_what_was_there(tmp_path):
    write(tmp_path, 1, seed=3)
    with pytest.raises(TypeError):
        write_checkpoint(tmp_path / "step-00000001", arrays(), arrays(), {"update": object()})
    assert np.array_equal(
        load_checkpoint(tmp_path / "step-00000001").weights["half"], arrays(3)["half"]
    )
    assert len(list(tmp_path.iterdir())) == 1


def sign(folder, **body):
    """Write a manifest with a right sha256 of its own, as another program could."""
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(body))


def test_another_format_is_rejected_in_one_line_and_no_earlier_checkpoint_is_tried(
    tmp_path, capsys, raises_line
):
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    for update in (1, 2):
        folder = write(run.checkpoints, update)
        sign(folder, format=1, files={})
    with raises_line(
        f"{folder} has format 1, but this version reads format 2; ", "start a new run"
    ):
        run.newest()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("files", [None, {}, {"state.json": {}}, []])
def test_a_manifest_without_its_keys_is_damaged(tmp_path, files):
    folder = write(tmp_path)
    sign(folder, format=2, **({} if files is None else {"files": files}))
    for text in ((folder / "manifest.json").read_text(), "[" * 100_000):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(
            CheckpointError, match=r"manifest\.json is damaged \(not a manifest\); use another"
        ):
            load_checkpoint(folder)
