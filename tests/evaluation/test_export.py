"""From a checkpoint to answers: predict, export, EMA weights; in one process, on an untrained net."""

import csv
import dataclasses
import json
import os
import re
from pathlib import Path

import mindspore
import numpy as np
import pytest
from PIL import Image

from resnet_fn.checkpoint.folder import CheckpointError, save_checkpoint
from resnet_fn.config import cli
from resnet_fn.config.fields import to_dict
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.evaluation.evaluate import evaluate
from resnet_fn.evaluation.export import ExportError, compare, describe_export, export
from resnet_fn.evaluation.loaded_net import load_net
from resnet_fn.evaluation.predict import find_images, predict
from resnet_fn.models.build import build_net

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def run():
    """A run folder with one checkpoint of an untrained net; its averaged weights are half the net's."""
    recipe, dataset = Recipe(model="resnet8", image_size=8), load_digits()
    net = build_net(recipe, dataset.input)
    averaged = [mindspore.Parameter(p * 0.5, name=f"ema.{p.name}") for p in net.trainable_params()]
    state = {
        "update": 5,
        "epoch": 0,
        "best": {"top1": 0.1, "update": 5},
        "last": None,
        "recipe": to_dict(recipe),
        "dataset": dataset.input.to_dict(),
    }
    save_checkpoint(Path("run/checkpoints/step-00000005"), list(net.get_parameters()), averaged, state)
    return Path("run")


@pytest.fixture
def digits_png(run):
    """The first 70 test digits as PNG files, 0 … 255."""
    Path("images/deeper").mkdir(parents=True)
    pixels = load_digits().test.images[:70, ..., 0].astype(np.float64) * 255 / 16
    for index, picture in enumerate(pixels.round().astype(np.uint8)):
        Image.fromarray(picture).save(f"images/{'deeper/' if index >= 65 else ''}{index:02d}.png")
    return Path("images")


def images(count=70, size=8):
    from resnet_fn.data.eval_batches import eval_batches

    digits = load_digits()
    return next(eval_batches(digits.test, dataclasses.replace(digits.input, image_size=size), count))[0]


def main(command, *arguments):
    module = __import__(f"resnet_fn.{command}", fromlist=["main"])
    return module.main([str(argument) for argument in arguments])


def test_predict_is_what_evaluation_says(run, digits_png, capsys):
    assert main("evaluate", "--checkpoint", run, "--report", "report") == 0
    capsys.readouterr()
    with open("report/predictions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:70]
    assert main("predict", "--checkpoint", run, "--json", digits_png) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(result["file"]).stem for result in results] == [f"{index:02d}" for index in range(70)]
    for result, row in zip(results, rows, strict=True):
        # 8-bit files round the 17 grey levels of the digits a little
        assert result["top"][0]["probability"] == pytest.approx(float(row["probability1"]), rel=0.02)
        assert len(result["top"]) == 5
    same = sum(result["top"][0]["class"] == row["class1"] for result, row in zip(results, rows, strict=True))
    assert same >= 68


def test_predict_prints_a_table_and_does_not_depend_on_company(run, digits_png, capsys):
    trained = load_net(run)
    files = find_images([digits_png])
    assert predict(trained, files)[67] == predict(trained, [files[67]])[0]
    assert main("predict", "--checkpoint", run, "--top", "2", digits_png / "03.png") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("images/03.png   ")
    assert line.count("%") == 2


def test_colour_files_are_read_as_the_net_needs_them(run):
    Image.new("RGBA", (20, 10), (255, 255, 255, 255)).save("white.png")
    (result,) = predict(load_net(run), [Path("white.png")])
    assert sum(row["probability"] for row in result["top"]) <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: None, r"^images/99.png: does not exist; did you mean images/59.png"),
        (lambda: Path("images/99.png").write_bytes(b"not a png"), r"^images/99.png: cannot be read \(not an image\)"),
        (
            lambda: Path("images/99.png").write_bytes(Path("images/01.png").read_bytes()[:60]),
            r"^images/99.png: cannot be read \(.*\); fix or remove it$",
        ),
        (lambda: Path("images/99.png").mkdir(), r"^images/99.png: holds no images"),
    ],
)
def test_predict_names_a_file_it_cannot_read(run, digits_png, make, message):
    make()
    with pytest.raises(ValueError, match=message):
        predict(load_net(run), find_images(["images/99.png"]))


def test_ema_weights_are_the_checkpoints_own(run):
    plain, averaged = load_net(run, ema=False), load_net(run, ema=True)
    for parameter, half in zip(plain.net.get_parameters(), averaged.net.get_parameters(), strict=True):
        factor = 0.5 if parameter.requires_grad else 1.0  # moving statistics are the net's own
        assert (half.asnumpy() == parameter.asnumpy() * factor).all(), parameter.name
    assert evaluate(run, ema=True)["loss"] != evaluate(run, ema=False)["loss"]
    assert evaluate(run) == evaluate(run, ema=True)  # as training's own evaluation


def test_ema_where_there_is_none_is_an_error_with_the_fix(run):
    trained = load_net(run)
    save_checkpoint(
        Path("bare/checkpoints/step-00000005"), list(trained.net.get_parameters()), [], trained.checkpoint.state
    )
    with pytest.raises(CheckpointError, match=r"step-00000005: holds no EMA weights; leave out --ema, or"):
        load_net("bare", ema=True)


def test_evaluation_options_change_what_they_say(run):
    plain = evaluate(run)
    assert evaluate(run, batch_size=7) == plain
    assert evaluate(run, tta="flip")["loss"] != plain["loss"]
    assert evaluate(run, image_size=16)["loss"] != plain["loss"]
    with pytest.raises(ValueError, match=r"^tta: 'flipp' is unknown; "):
        evaluate(run, tta="flipp")
    with pytest.raises(ValueError, match=r"^image_size: -1 is negative; give pixels, or 0 for the recipe's own$"):
        evaluate(run, image_size=-1)


@pytest.mark.parametrize("kind", ["mindir", "onnx", "safetensors"])
@pytest.mark.parametrize("batch", [0, 5])
def test_exported_files_answer_as_the_net(run, kind, batch):
    out = Path("out", f"net.{kind}")
    card = export(load_net(run), out, kind, batch, images(12))
    assert sorted(os.listdir("out")) == [f"net.{kind}", f"net.{kind}.json"]
    assert json.loads(Path("out", f"net.{kind}.json").read_text()) == card
    assert card["classes"] == list("0123456789")
    assert (card["preprocessing"]["mean"], card["preprocessing"]["full_scale"]) == ([0.305386], 255.0)
    assert card["input"]["shape"] == [batch or None, 1, 8, 8]
    assert card["verified"]["images"] == (10 if batch else 12)
    assert card["verified"]["largest_difference"] <= 1e-5
    assert card["verified"]["same_top1"] == 1.0


def documented():
    """The names that the Python block of docs/export.md leaves."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    names = {}
    exec(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)[0], names)
    return names


@pytest.mark.parametrize("size", [8, 16])
def test_an_image_file_answers_by_the_documented_steps_as_predict_says(run, digits_png, size):
    """From a PNG through onnxruntime; of the net's own size, and of others, which are resized."""
    trained = load_net(run, image_size=size)
    export(trained, Path("net.onnx"), "onnx", 0, images(12, size))
    digits_png.joinpath("05.png").rename("digit.png")
    names = documented()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 13, 3), np.uint8)).save("other.png")
    for file in ("digit.png", "other.png", *digits_png.glob("0*.png")):
        (logits,) = names["session"].run(["logits"], {"images": names["read_image"](file)})
        exponentials = np.exp(logits[0].astype(float) - logits.max())
        (result,) = predict(trained, [Path(file)], top=10)
        expected = {likely["index"]: likely["probability"] for likely in result["top"]}
        found = exponentials / exponentials.sum()
        assert [expected[index] for index in range(10)] == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("kind", ["mindir", "onnx"])
def test_inputs_and_outputs_have_names(run, kind):
    export(load_net(run), Path(f"net.{kind}"), kind, 0, images(4))
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession("net.onnx")
        names = [[value.name for value in values] for values in (session.get_inputs(), session.get_outputs())]
    else:
        from mindspore.train.mind_ir_pb2 import ModelProto

        graph = ModelProto.FromString(Path("net.mindir").read_bytes()).graph
        names = [[value.name for value in values] for values in (graph.input, graph.output)]
    assert names == [["images"], ["logits"]]


def test_the_description_is_inside_the_file_too(run):
    import onnx

    trained = load_net(run)
    card = export(trained, Path("net.onnx"), "onnx", 0, images(4))
    model = onnx.load("net.onnx")
    # Standard convolutions, not the matrix products that compute them here.
    operations = [node.op_type for node in model.graph.node]
    assert operations.count("Conv") == 9  # ResNet-8: a stem, six in blocks, two projections
    assert operations.count("MatMul") == 0
    inside = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(inside["classes"]) == card["classes"]
    assert json.loads(inside["preprocessing"]) == card["preprocessing"]
    export(trained, Path("net.safetensors"), "safetensors", 0, images(4))
    data = Path("net.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["__metadata__"]["classes"]) == card["classes"]
    start, end = header["fc.bias"]["data_offsets"]
    body = data[8 + int.from_bytes(data[:8], "little") :]
    assert body[start:end] == trained.net.fc.bias.asnumpy().tobytes()


def test_a_file_that_answers_otherwise_is_not_kept(run, monkeypatch):
    """The net changes between writing and comparing, as a broken exporter would make it."""
    import resnet_fn.evaluation.export as exporting

    trained = load_net(run)

    def write(trained, file, batch, card):
        exporting._write_safetensors(trained, file, batch, card)
        mindspore.ops.assign(trained.net.fc.bias, trained.net.fc.bias + 0.01)

    monkeypatch.setitem(exporting._WRITERS, "safetensors", write)
    with pytest.raises(ExportError, match=r"logits differ from the net's by up to 0\.01 .* no file was kept$"):
        export(trained, Path("out/net.safetensors"), "safetensors", 0, images(4))
    assert os.listdir("out") == []


def test_comparison_refuses_what_is_not_finite_or_fails(run):
    trained = load_net(run)
    with pytest.raises(ExportError, match="differ from the net's by up to nan"):
        compare(trained, lambda part: np.full((len(part), 10), np.nan, np.float32), images(4), 0)

    def fails(part):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(ExportError, match=r"cannot be run \(shapes do not fit\); no file was kept; give --batch N"):
        compare(trained, fails, images(4), 0)
    assert describe_export(trained, "mindir", 3)["output"]["shape"] == [3, 10]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (
            "export",
            ["--format", "onnx", "--out", "x.onnx", "--batch", "no"],
            "--batch: 'no' is not a whole number above 0",
        ),
        (
            "export",
            ["--format", "safetensors", "--out", "x.safetensors", "--batch", "2"],
            "--batch: a safetensors file holds",
        ),
        ("export", ["--format", "mindir", "--out", "x.mindir", "--image-size", "-2"], "--image-size: -2 is negative"),
        (
            "export",
            ["--format", "onnx", "--out", "a/x.mindir"],
            "--out: a/x.mindir does not end in .onnx; give --out a/x",
        ),
        ("export", ["--format", "mindr", "--out", "x"], "--format: 'mindr' is unknown; use one of mindir"),
        ("evaluate", ["--which", "bset"], "--which: 'bset' is unknown; use one of last, best"),
        ("predict", ["--top", "x", "x.png"], "--top: 'x' is not a whole number"),
        ("predict", ["--top", "0", "x.png"], "--top: 0 is too small; give 1 or more"),
        ("evaluate", ["--batch-size", "0"], "--batch-size: 0 is too small; give 1 or more"),
    ],
)
def test_wrong_usage_is_said_before_any_work(command, arguments, message):
    with pytest.raises(cli.UsageError) as caught:
        main(command, "--checkpoint", "nowhere", *arguments)
    assert str(caught.value).startswith(message)
