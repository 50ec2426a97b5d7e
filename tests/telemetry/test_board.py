"""What TensorBoard gets, read back from the event files; and what a picture shows."""

import json
import struct
import time
from pathlib import Path

import mindspore
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.models import create_model
from resnet_fn.plot import read_events
from resnet_fn.run.loop import train
from resnet_fn.telemetry import drawing
from resnet_fn.telemetry.board import Board
from resnet_fn.telemetry.norms import LayerNorms, group_of

pytestmark = pytest.mark.usefixtures("device")

SMALL = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=2)


def read_board(run):
    """All events of a run's files, in the order in which they were written."""
    events = []
    for path in sorted(Path(run).glob("events.out.tfevents.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            events.append(event_pb2.Event.FromString(data[place + 12 : place + 12 + length]))
            place += 12 + length + 4
    return events


def values(events, tag):
    return [(event.step, value) for event in events for value in event.summary.value if value.tag == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    options = RunOptions(out_dir=str(folder), norms_every=4, progress=False)
    train(SMALL, options)
    return folder


def test_every_group_of_names_is_there(run):
    events = read_board(run)
    tags = {value.tag for event in events for value in event.summary.value}
    assert {tag for tag in tags if tag.startswith("train/")} == {
        *("train/loss", "train/accuracy", "train/learning_rate", "train/gradient_norm", "train/loss_scale"),
        *("train/skipped_updates", "train/first_batch"),
    }
    assert {tag for tag in tags if tag.startswith("eval/")} == {
        *("eval/loss", "eval/top1", "eval/top5", "eval/confusion_matrix"),
    }
    assert {tag for tag in tags if tag.startswith("system/")} == {
        *("system/images_per_second", "system/data_seconds", "system/step_seconds", "system/memory_mb"),
        "system/checkpoint_stall_seconds",
    }
    groups = {"stem", "layer1", "layer2", "layer3", "fc"}
    for kind in ("gradient", "weight", "update"):
        assert {tag for tag in tags if tag.startswith(f"train_{kind}_norm/")} == {
            f"train_{kind}_norm/{group}" for group in groups
        }
    assert {"config/recipe/text_summary", "config/options/text_summary"} < tags
    assert [step for step, _ in values(events, "train/loss")] == list(range(1, 11))
    assert [step for step, _ in values(events, "eval/confusion_matrix")] == [5, 10]
    assert [step for step, _ in values(events, "train_weight_norm/fc")] == [4, 8]
    assert [step for step, _ in values(events, "train/first_batch")] == [0]


def test_the_config_and_the_hyper_parameters_are_written_once_with_their_end(run):
    events = read_board(run)
    ((_, text),) = values(events, "config/recipe/text_summary")
    assert b"| batch_size | 240 |" in text.tensor.string_val[0]
    for tag in ("session_start_info", "session_end_info"):
        assert len(values(events, f"_hparams_/{tag}")) == 1, tag
    start = values(events, "_hparams_/session_start_info")[0][1]
    assert b"batch_size" in start.SerializeToString()


def test_norms_in_the_log_are_the_steps_own(run):
    rows = [event for event in read_events(run) if "norms" in event]
    assert [row["update"] for row in rows] == [4, 8]
    for row in rows:
        total = np.sqrt(sum(value**2 for value in row["norms"]["gradient"].values()))
        assert total == pytest.approx(row["grad_norm"], rel=1e-5)
        assert all(0 < value < 10 for value in row["norms"]["update"].values())


def test_a_stopped_run_goes_on_without_overlap(run, tmp_path):
    """Events past the last checkpoint are hidden, and the log has every update once."""
    import shutil

    shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(tmp_path / "again/checkpoints/step-00000010")
    train(SMALL, RunOptions(out_dir=str(tmp_path / "again"), progress=False))
    log = read_events(tmp_path / "again")
    assert [row["update"] for row in log if row["event"] == "train"] == list(range(1, 11))
    events = read_board(tmp_path / "again")
    starts = [event.step for event in events if event.session_log.status == event_pb2.SessionLog.START]
    assert starts == [0, 6]
    assert len(values(events, "config/recipe/text_summary")) == 1
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    board = accumulator.EventAccumulator(str(tmp_path / "again"))
    board.Reload()
    curve = board.Scalars("train/loss")
    assert [point.step for point in curve] == list(range(1, 11))
    assert [point.value for point in curve] == pytest.approx([row["loss"] for row in log if row["event"] == "train"])


def test_layer_norms_are_the_definition():
    net = create_model("resnet8", num_classes=10, in_channels=1)
    weights = net.trainable_params()
    norms = LayerNorms(list(net.get_parameters()), every=3)
    assert [norms.before(update) for update in (1, 2, 3)] == [False, False, True]
    for parameter in weights:
        mindspore.ops.assign(parameter, parameter + 0.5)
    measured = norms.after(np.full(len(weights), 4.0, np.float32))
    groups = [group_of(parameter.name) for parameter in weights]
    for group in ("stem", "layer1", "layer2", "layer3", "fc"):
        own = [p.asnumpy() for p, g in zip(weights, groups, strict=True) if g == group]
        assert measured["gradient"][group] == pytest.approx(2.0 * np.sqrt(len(own)))
        assert measured["weight"][group] == pytest.approx(np.sqrt(sum((a.astype(float) ** 2).sum() for a in own)))
        assert measured["update"][group] == pytest.approx(0.5 * np.sqrt(sum(a.size for a in own)), rel=1e-5)
    assert not LayerNorms(weights, every=0).before(3)


def test_a_norm_that_is_not_finite_is_null_in_the_log(tmp_path):
    from resnet_fn.telemetry.telemetry import Telemetry

    event = {"event": "train", "update": 1, "loss": float("nan"), "accuracy": 0.0, "lr": 0.1, "images_per_second": 1.0}
    with Telemetry(tmp_path, 0, 1, progress=False) as telemetry:
        telemetry.advance(0, 1, {**event, "norms": {"gradient": {"fc": float("inf")}}})
    (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert row["loss"] is None
    assert row["norms"] == {"gradient": {"fc": None}}


def test_a_batch_is_shown_as_the_net_gets_it():
    """0 is mid-grey on a fixed scale, so a batch that is not centred looks pale."""
    images = np.zeros((2, 1, 8, 8), np.float32)
    images[1] = 2.5
    sheet = drawing.batch_grid(images, ["zero", "high"], "title")
    assert sheet.dtype == np.uint8
    assert sheet.shape[2] == 3
    assert sheet.shape[1] == 700
    assert (sheet == 128).all(2).sum() >= 134 * 134
    title = drawing.input_title(np.full((4, 3, 2, 2), 1.5, np.float32))
    assert "1.50 ± 0.00, 1.50 ± 0.00, 1.50 ± 0.00" in title


def test_labels_are_named():
    assert drawing.label_texts(np.array([1, 0]), ["cat", "dog"]) == ["dog", "cat"]
    soft = np.float32([[0.7, 0.3, 0.0], [0.02, 0.96, 0.02]])
    assert drawing.label_texts(soft, ["cat", "dog", "emu"]) == ["70% cat\n30% dog", "96% dog"]


@pytest.mark.parametrize("classes", [2, 10, 13, 16, 35, 100, 1000])
def test_confusion_pictures_have_the_size_of_two_cards(classes):
    """TensorBoard shows 350 x 206 of them by default, without smoothing: half of each side is a whole number."""
    counts = np.eye(classes, dtype=int) * 3
    counts[0, 1] = 2
    picture = drawing.confusion_picture(counts, [f"class {i}" for i in range(classes)])
    assert picture.shape == (412, 700, 3)
    dark = (picture == [8, 48, 107]).all(2)  # a class that is always right is the darkest blue
    assert dark.sum() > 300
    assert dark[::2, ::2].sum() == pytest.approx(dark.sum() / 4, rel=0.1)  # and so in the card


def test_more_classes_than_pixels_are_summed_in_blocks():
    counts = np.arange(49).reshape(7, 7)
    blocks = drawing._sum_blocks(counts, 3)
    assert blocks.shape == (3, 3)
    assert blocks.sum() == counts.sum()
    assert blocks[0, 1] == counts[:3, 3:6].sum()
    assert blocks[2, 2] == counts[6, 6]


def test_names_that_pils_font_has_not_are_told_otherwise():
    """PIL's own font draws a box for each letter that it lacks."""
    assert drawing._plain("éléphant", 4) == "elephant"
    assert drawing._plain("猫", 4) == "class 4"
    fitted = drawing._fit("aquarium_fish_17", 100)
    assert drawing._width(fitted) <= 100
    assert fitted.startswith("aqua")
    assert fitted.endswith("...17")


def test_a_board_that_starts_anew_hides_what_was_there(tmp_path):
    for _ in range(2):
        board = Board(tmp_path, 0)
        board.scalars({"loss": "train/loss"}, {"update": 1, "loss": 2.0})
        board.close(whole=False)
        time.sleep(1.1)  # tensorboardX names its files by the second
    starts = [e.step for e in read_board(tmp_path) if e.session_log.status == event_pb2.SessionLog.START]
    assert starts == [0, 0]
