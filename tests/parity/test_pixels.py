import json
import subprocess
import sys

import numpy as np
import pytest
from mindspore.dataset import vision
from PIL import Image

from resnet_fn.config import cli
from resnet_fn.data.preprocess import as_decodable, eval_pixels, open_rgb
from resnet_fn.parity import __main__ as parity
from resnet_fn.parity.pixels import data_stage, sample_files, table


def test_our_pixels_are_pils_and_torchvisions():
    decode, evaluation, normalise, training = data_stage()
    assert (decode.largest, decode.differing) == (0, 0)
    assert (evaluation.largest, evaluation.differing) == (0, 0)
    assert 0 < normalise.largest < 2e-6
    assert training.limit is None
    assert 0 < training.mean < 3  # of 255
    assert all(stage.passes for stage in (decode, evaluation, normalise, training))


@pytest.mark.parametrize(("resize", "crop"), [(236, 224), (232, 224), (256, 225), (33, 32), (224, 224)])
def test_odd_sizes_round_as_torchvision_does(resize, crop):
    assert data_stage(sample_files(4), resize, crop)[1].largest == 0


def test_a_wrong_preprocessing_would_show():
    """The comparison has teeth: one pixel's shift, or no antialiasing, is far beyond the limit."""
    data = sample_files(1)[0]
    shifted = np.asarray(open_rgb(data).resize((341, 256), Image.BILINEAR))[17:241, 59:283]
    plain = vision.Resize((256, 341))(np.asarray(open_rgb(data)))[16:240, 58:282]
    ours = eval_pixels(data, 256, 224).astype(int)
    assert np.abs(shifted - ours).max() > 5
    assert np.abs(plain - ours).max() > 5


def test_extreme_shapes(encode):
    assert eval_pixels(encode(Image.new("RGB", (1, 1), (200, 9, 9))), 36, 32).shape == (32, 32, 3)
    long = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2, 1600, 3), dtype=np.uint8))
    data = encode(long, "PNG")
    whole = np.asarray(long.resize((256 * 800, 256), Image.BILINEAR))
    middle = (whole.shape[1] - 224) // 2
    # More than 50 million pixels if it were resized whole: only the crop is computed.
    assert np.abs(eval_pixels(data, 256, 224).astype(int) - whole[16:240, middle : middle + 224]).max() <= 1


def test_converted_files_keep_their_pixels(make_photograph, encode):
    data = encode(make_photograph(3), "WEBP")
    assert np.array_equal(np.asarray(open_rgb(as_decodable(data))), np.asarray(open_rgb(data)))


def test_the_table_tells_what_is_known_from_what_differs():
    lines = table(data_stage(sample_files(2))).splitlines()
    assert [line.split()[-1] for line in lines] == ["verdict", "ok", "ok", "ok", "known"]


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(cli.UsageError, match=r"--data: none.jpg cannot be read \(No such file or directory\)"):
        parity.main(["--data", "none.jpg"])


@pytest.mark.slow
def test_the_ladder_has_a_data_stage(tmp_path, make_photograph, encode):
    pytest.importorskip("torch")
    file = tmp_path / "a photograph.jpg"
    file.write_bytes(encode(make_photograph(3, 300, 260), quality=90))
    flags = ("--image-size", "16", "--steps", "1", "--data", str(file), "--json", str(tmp_path / "ladder.json"))
    done = subprocess.run(
        [sys.executable, "-m", "resnet_fn.parity", *flags], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("data stage")
    stages = json.loads((tmp_path / "ladder.json").read_text())["data"]
    assert [stage["largest"] for stage in stages[:2]] == [0, 0]
