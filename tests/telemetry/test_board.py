"""TensorBoard's events: names, pictures, full disks, resumed runs."""

import io
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboardX.proto import event_pb2

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.plot import read_events
from resnet_fn.recipes import RECIPES
from resnet_fn.run.loop import train
from resnet_fn.telemetry.board import SCALARS, Board

pytestmark = pytest.mark.usefixtures("device")

SMALL = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=2)


def values(events, tag):
    return [
        (event.step, value) for event in events for value in event.summary.value if value.tag == tag
    ]


def text_of(events, name):
    """The lines of the text config/`name`."""
    ((_, value),) = values(events, f"config/{name}/text_summary")
    return value.tensor.string_val[0].decode().splitlines()


@pytest.fixture
def written(tmp_path, board_events):
    """written(method, *arguments) calls a method of a new Board, and returns the file's events."""

    def write(method, *arguments, recipe=SMALL, options=RunOptions(), start=0):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        board = Board(folder, recipe, options, start)
        getattr(board, method)(*arguments)
        board.close(whole=False)
        return board_events(folder)

    return write


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    options = RunOptions(out_dir=str(folder), norms_every=4, mode="pynative", progress=False)
    train(SMALL, options)
    return folder


def test_a_picture_never_ends_a_run(written, capsys):
    # which has no fourth
    written("batch", np.zeros((1, 1, 8, 8), np.float32), np.array([3]), ["one class"])
    line = "warning: first batch not shown in TensorBoard: list index out of range\n"
    assert capsys.readouterr().err == line


def test_the_first_batch_has_a_fixed_grey_scale(written):
    """0 is mid-grey, 2.5 white, -2.5 black, whatever else is in the batch: one that is not centred
    looks pale.
    """
    images = np.zeros((5, 1, 8, 8), np.float32)
    images[1], images[2], images[3], images[4] = 2.5, -2.5, 1.25, 9.0
    classes = ["猫", "b\udcff"]
    events = written("batch", images, np.array([0, 1, 1, 1, 1]), classes)
    ((_, picture),) = values(events, "train/first_batch")
    pixels = np.asarray(Image.open(io.BytesIO(picture.image.encoded_image_string)))
    assert pixels.shape == (136, 680, 3)  # each of the 8 pixels 17 times, so that they can be seen
    assert pixels[0, ::136, 0].tolist() == [127, 255, 0, 191, 255]
    assert text_of(events, "first_batch")[:3] == [
        "- channel 0: mean 2.05 ± 3.85",
        "- image 1: 猫 100%",
        "- image 2: b\\xff 100%",
    ]
    large = np.zeros((2, 3, 224, 224), np.float32)
    ((_, picture),) = values(written("batch", large, np.array([0, 1]), "ab"), "train/first_batch")
    assert (picture.image.height, picture.image.width) == (112, 224)  # every second pixel
    soft = np.float32([[1, 1], [0.25, 0.75], [0, 0], [0, 1], [0, 1]])
    assert text_of(written("batch", images, soft, classes), "first_batch")[1:4] == [
        "- image 1: 猫 100%, b\\xff 100%",
        "- image 2: 猫 25%, b\\xff 75%",
        "- image 3: no class",
    ]


FULL_DISK = """
import resource, signal
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.telemetry.board import Board
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
board = Board(Path('run'), Recipe(), RunOptions(), 0)
for update in range(1, 201):
    event = {'event': 'train', 'update': update, 'loss': 2.0}
    try: board.scalars(event)
    except OSError as error: print(error); break
try: board.close(whole=True)
except OSError as error: print(error)
"""


def test_a_full_disk_names_the_event_file(python):
    """No file of the process may grow beyond 4 kB, as on a full disk; 200 events are more."""
    done = python("-c", FULL_DISK, seconds=60)
    assert re.search(r"run/events.out.tfevents: cannot be saved .*--out-dir run", done.stdout)


def test_a_run_writes_every_group_of_curves(run, board_events):
    events = board_events(run)
    tags = {value.tag for event in events for value in event.summary.value}
    wanted = {name for kind in ("train", "eval", "checkpoint") for name in SCALARS[kind].values()}
    # of fp16, of several classes an image
    wanted -= {"train/loss_scale", "train/skipped_updates", "eval/map"}
    wanted |= {"train/first_batch"} | {
        f"train_{kind}_norm/{group}"
        for kind in ("gradient", "weight", "update")
        for group in ("stem", "layer1", "layer2", "layer3", "fc")
    }
    assert {tag for tag in tags if tag.startswith(("train", "eval"))} == wanted
    assert [step for step, _ in values(events, "train/loss")] == list(range(1, 11))
    assert [step for step, _ in values(events, "train_weight_norm/fc")] == [4, 8]
    assert [step for step, _ in values(events, "train/first_batch")] == [0]


def test_only_fp16_has_a_loss_scale_curve(written):
    """In float32 (`test_a_run_writes_every_group_of_curves`) the scale is always 1, and the first
    update that would be skipped ends the run.
    """
    event = {"event": "train", "update": 1, "loss_scale": 1.0, "skipped": 0}
    events = written("scalars", event, recipe=Recipe(precision="fp16"), start=3)
    tags = {value.tag for event in events for value in event.summary.value}
    assert tags == {"train/loss_scale", "train/skipped_updates"}


def test_settings_that_differ_are_marked_and_come_first(written):
    recipe = RECIPES["digits"].changed(epochs=5, nesterov=False)
    events = written("flush", recipe=recipe, options=RunOptions(threads=2))
    for name, rows in (
        ("recipe", ["| **epochs** | **5** | 20 |", "| **nesterov** | **False** | True |"]),
        ("options", ["| **threads** | **2** | 0 |", "| out_dir |  |  |"]),
    ):
        lines = text_of(events, name)
        assert lines[2:4] == rows
        assert sum("**" in line for line in lines) == sum("**" in row for row in rows)
        assert len(lines) == 2 + len(vars(recipe if name == "recipe" else RunOptions()))


def test_the_config_is_written_once(run, board_events):
    events = board_events(run)
    for tag in ("session_start_info", "session_end_info"):
        assert len(values(events, f"_hparams_/{tag}")) == 1, tag
    start = values(events, "_hparams_/session_start_info")[0][1]
    assert b"batch_size" in start.SerializeToString()


def test_a_stopped_run_goes_on_without_overlap(run, tmp_path, board_events):
    shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(tmp_path / "again/checkpoints/step-00000010")
    train(SMALL, RunOptions(out_dir=str(tmp_path / "again"), mode="pynative", progress=False))
    events = board_events(tmp_path / "again")
    starts = [
        event.step for event in events if event.session_log.status == event_pb2.SessionLog.START
    ]
    assert starts == [0, 6]
    assert len(values(events, "config/recipe/text_summary")) == 1
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    board = accumulator.EventAccumulator(str(tmp_path / "again"))
    board.Reload()
    log = [row for row in read_events(tmp_path / "again") if row["event"] == "train"]
    assert [(point.step, point.value) for point in board.Scalars("train/loss")] == [
        (update, pytest.approx(row["loss"])) for update, row in enumerate(log, 1)
    ]
    assert len(log) == 10
