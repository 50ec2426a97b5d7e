"""Exported files compute the net's outputs and describe their input."""

import dataclasses
import json
import os
import re
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore.train.mind_ir_pb2 import ModelProto
from PIL import Image
from scipy.special import softmax

from resnet_fn.data.dataset import eval_batches
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation import export as exporting
from resnet_fn.evaluation.export import ExportError, compare, describe_export, export
from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.evaluation.predict import predict

pytestmark = pytest.mark.usefixtures("device")


def images(count=70, size=8):
    digits = load_digits()
    spec = dataclasses.replace(digits.input, image_size=size)
    return next(eval_batches(digits.test, spec, count))[0]


@pytest.mark.parametrize("kind", ["mindir", "onnx", "safetensors"])
@pytest.mark.parametrize("batch", [0, 5])
def test_exported_files_answer_as_the_net(trained, kind, batch):
    out = Path("out", f"net.{kind}")
    run = str(trained.checkpoint.path)
    places = {name: f"/secret/{name}" for name in ("data_dir", "train_list", "val_list")}
    trained = dataclasses.replace(trained, input=dataclasses.replace(trained.input, **places))
    card = export(trained, out, batch, images(12))
    written = b"".join(file.read_bytes() for file in out.parent.iterdir())
    modules = (os.path.dirname(module.__file__) for module in (mindspore, exporting))
    assert not any(place.encode() in written for place in ("/secret", run, os.getcwd(), *modules))
    assert sorted(os.listdir("out")) == [f"net.{kind}", f"net.{kind}.json"]
    assert json.loads(Path("out", f"net.{kind}.json").read_text()) == card
    assert card["classes"] == list("0123456789")
    assert (card["preprocessing"]["mean"], card["preprocessing"]["full_scale"]) == (
        [0.305386],
        255.0,
    )
    assert card["input"]["shape"] == [batch or None, 1, 8, 8]
    assert card["verified"]["images"] == (10 if batch else 12)
    assert card["verified"]["largest_difference"] <= 1e-5
    assert card["verified"]["same_top1"] == 1.0
    if kind == "mindir":  # an ONNX file's names are used by docs/export.md's lines, which are run
        graph = ModelProto.FromString(out.read_bytes()).graph
        assert [value.name for value in (*graph.input, *graph.output)] == ["images", "logits"]


def documented():
    """The names that the Python block of docs/export.md leaves."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    names = {}
    exec(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)[0], names)
    return names


@pytest.mark.parametrize("size", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_documented_steps_of_an_export_equal_predict(run, digits_png, size):
    """From a PNG through onnxruntime; of the net's own size, of others, which are resized, turned,
    with 16 bits.
    """
    trained = load_run(run, image_size=size)
    export(trained, Path("net.onnx"), 0, images(12, size))
    digits_png.joinpath("05.png").rename("digit.png")
    names = documented()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (31, 13, 3), np.uint8)).save("other.png")
    noise = rng.integers(0, 65536, (9, 13), np.uint16)
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(noise).save("deep.png")
    Image.fromarray((noise >> 8).astype(np.uint8)).save("turned.jpg", exif=exif)
    for file in ("digit.png", "other.png", "deep.png", "turned.jpg", *digits_png.glob("0*.png")):
        (logits,) = names["session"].run(["logits"], {"images": names["read_image"](file)})
        (result,) = predict(trained, [Path(file)], top=10)
        expected = {likely["index"]: likely["probability"] for likely in result["top"]}
        assert [expected[index] for index in range(10)] == pytest.approx(
            softmax(logits[0].astype(float)), abs=1e-6
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "resnet8", "stem": "imagenet"},  # each family's own net: tests/acceptance
        {"model": "resnet8", "stem": "imagenet", "precision": "fp16"},
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_exported_nets_with_imagenet_stem_compute_the_same(make_run, digits_png, settings):
    """Its max-pool is another operation in a file; the net itself predicts the same bits before and
    after.
    """
    trained = load_run(make_run(**settings, image_size=64), image_size=64)
    before = predict(trained, "images/05.png", top=10)
    for kind in ("mindir", "onnx"):
        verified = export(trained, Path(f"net.{kind}"), 0, images(2, 64))["verified"]
        assert verified["largest_difference"] <= verified["tolerance"] * (
            0.1 if trained.recipe.precision == "fp32" else 1
        )
    assert predict(trained, "images/05.png", top=10) == before


def test_the_description_is_inside_the_file_too(run):
    import onnx

    trained = load_run(run)
    card = export(run, "net.onnx")
    assert card["preprocessing"] == trained.preprocessing
    assert card["verified"]["images"] == 128
    with pytest.raises(
        ValueError, match=r"^out: net.pb ends in '.pb'; give a file that ends in .mindir, .onnx or"
    ):
        export(run, "net.pb")
    model = onnx.load("net.onnx")
    # Standard convolutions, not the matrix products that compute them here.
    operations = [node.op_type for node in model.graph.node]
    assert operations.count("Conv") == 9  # ResNet-8: a stem, six in blocks, two projections
    assert operations.count("MatMul") == 0
    inside = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(inside["classes"]) == card["classes"]
    assert json.loads(inside["preprocessing"]) == card["preprocessing"]
    export(trained, Path("net.safetensors"), 0, images(4))
    data = Path("net.safetensors").read_bytes()
    body = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:body])
    assert json.loads(header["__metadata__"]["classes"]) == card["classes"]
    start, end = header["fc.bias"]["data_offsets"]
    assert data[body + start : body + end] == trained.net.fc.bias.asnumpy().tobytes()


def test_a_file_that_answers_otherwise_is_not_kept(run, monkeypatch):
    """The net changes between writing and comparing, as a broken exporter would make it."""
    trained = load_run(run)

    def write(trained, file, card):
        exporting._write_safetensors(trained, file, card)
        mindspore.ops.assign(trained.net.fc.bias, trained.net.fc.bias + 0.01)

    monkeypatch.setitem(exporting._WRITERS, "safetensors", write)
    with pytest.raises(
        ExportError, match=r"logits differ from the net's by up to 0\.01 .* no file was kept$"
    ):
        export(trained, Path("out/net.safetensors"), 0, images(4))
    assert os.listdir("out") == []


def test_comparison_refuses_what_is_not_finite_or_fails(trained):
    with pytest.raises(ExportError, match="differ from the net's by up to nan"):
        compare(trained, lambda part: np.full((len(part), 10), np.nan, np.float32), images(4), 0)

    def fails(part):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(
        ExportError, match=r"cannot be run \(shapes do not fit\) and was not kept; set a batch size"
    ):
        compare(trained, fails, images(4), 0)
    assert describe_export(trained, "mindir", 3)["output"]["shape"] == [3, 10]
