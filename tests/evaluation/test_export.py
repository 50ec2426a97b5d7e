"""Exported files compute the net's outputs and describe their input."""

import dataclasses
import json
import os
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore.train.mind_ir_pb2 import ModelProto
from safetensors import safe_open

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
    assert card["input"]["shape"] == [batch or None, 1, 8, 8]
    verified = card["verified"]
    assert (verified["images"], verified["same_top1"]) == (10 if batch else 12, 1.0)
    assert verified["largest_difference"] <= 1e-5
    if kind == "mindir":  # an ONNX file's names are used by docs/export.md's lines, which are run
        graph = ModelProto.FromString(out.read_bytes()).graph
        assert [value.name for value in (*graph.input, *graph.output)] == ["images", "logits"]


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
    with safe_open("net.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["classes"]) == card["classes"]
        assert np.array_equal(file.get_tensor("fc.bias"), trained.net.fc.bias.asnumpy())


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
