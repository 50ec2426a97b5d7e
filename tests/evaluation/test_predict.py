"""From image files to answers: a net trained on JPEG files or MindRecord shards, its report, predictions, exports."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mindspore
import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.evaluate import evaluate, evaluate_in_detail
from resnet_fn.evaluation.loaded_net import load_net
from resnet_fn.evaluation.predict import find_images, predict
from resnet_fn.plot import read_events
from resnet_fn.report import plots
from resnet_fn.report.writer import build_report, write_report
from resnet_fn.run.loop import train

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.slow]

CLASSES = ["bee", "cat with a space", "éléphant"]
SMALL = {"model": "resnet8", "image_size": 16, "batch_size": 12, "epochs": 2, "learning_rate": 0.02}
KINDS = {
    "imagefolder": {"dataset": "imagefolder", "eval_resize": 20},
    "mindrecord-fp16": {"dataset": "mindrecord", "precision": "fp16", "ema": 0.8},
}


def main(command, *arguments):
    module = __import__(f"resnet_fn.{command}", fromlist=["main"])
    return module.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module", params=list(KINDS))
def run(request, photographs, tmp_path_factory):
    """A run folder: two epochs on the photographs, as files or packed."""
    folder, data = tmp_path_factory.mktemp("run") / "run", photographs
    if KINDS[request.param]["dataset"] == "mindrecord":
        data = folder.parent / "packed"
        assert main("pack", photographs, data, "--shards", 2, "--no-progress") == 0
    options = RunOptions(out_dir=str(folder), data_dir=str(data), progress=False)
    train(Recipe(**SMALL, **KINDS[request.param]), options)
    return folder


@pytest.fixture(scope="module")
def detail(run):
    return evaluate_in_detail(run)


def names(photographs):
    return [f"{path.parent.name}/{path.name}" for path in sorted((photographs / "val").glob("*/*"))]


def rows_of(folder):
    with open(Path(folder, "predictions.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_evaluation_says_what_training_said(run):
    """In fp16 too, and with averaged weights: the same bits."""
    last = [event for event in read_events(run) if event["event"] == "eval"][-1]
    found = evaluate(run)
    assert found == {key: last[key] for key in found}


def test_report_names_the_files(run, detail, photographs):
    report = write_report(detail, Path("report"))
    rows = rows_of("report")
    assert [row["name"] for row in rows] == names(photographs)
    assert all(row["name"].startswith(row["label"] + "/") for row in rows)
    wrong = sorted((row for row in rows if row["right"] == "0"), key=lambda row: -float(row["probability1"]))
    assert len(report["mistakes"]) == min(36, len(wrong)) > 0
    text = Path("report/report.html").read_text(encoding="utf-8")
    figure = plots.mistakes_figure(report["mistakes"], detail)
    for mistake, axes in zip(report["mistakes"], figure.axes, strict=False):
        row = rows[mistake["index"]]
        assert (mistake["name"], mistake["label"], mistake["prediction"]) == (row["name"], row["label"], row["class1"])
        assert mistake["name"] in text
        assert mistake["name"][-15:] in axes.get_title()
        assert mistake["prediction"] in axes.get_title()
    assert [m["confidence"] for m in report["mistakes"]] == sorted(
        (m["confidence"] for m in report["mistakes"]), reverse=True
    )


def test_contact_sheet_shows_the_file_itself(detail, photographs):
    """The sheet's picture is the file's pixels: resized, centre cut."""
    from resnet_fn.data.preprocess import eval_pixels
    from resnet_fn.report.samples import sample_pictures

    resize = detail.trained.recipe.evaluation_resize
    for index, picture in zip([3, 77], sample_pictures(detail.dataset, [3, 77]), strict=True):
        data = (photographs / "val" / names(photographs)[index]).read_bytes()
        np.testing.assert_allclose(picture * 255, eval_pixels(data, resize, 16), atol=0.01)


def test_figures_are_scikit_learns(detail):
    import sklearn.metrics as metrics

    from resnet_fn.data.eval_batches import eval_batches

    report = build_report(detail)
    parts = eval_batches(detail.dataset.test, detail.dataset.input, 64)
    net = detail.trained.net
    logits = np.concatenate([net(mindspore.Tensor(images)).asnumpy().astype(float) for images, _, _ in parts])[:90]
    labels, guesses = detail.dataset.test.labels, logits.argmax(1)
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    loss = metrics.log_loss(labels, exponentials / exponentials.sum(1, keepdims=True))
    half = detail.trained.recipe.precision == "fp16"  # outside the compiled function it rounds elsewhere
    assert report["loss"] == pytest.approx(loss, rel=1e-3 if half else 1e-5)
    close = np.sort(logits, 1)[:, -1] - np.sort(logits, 1)[:, -2] < 2e-3
    same = guesses == detail.scores.prediction
    assert (same | close).all() if half else same.all()
    guesses = detail.scores.prediction
    assert report["top1"] == metrics.accuracy_score(labels, guesses)
    assert report["confusion"] == metrics.confusion_matrix(labels, guesses).tolist()
    expected = metrics.precision_recall_fscore_support(labels, guesses, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[name] for row in report["classes"]] == pytest.approx(values, rel=1e-12), name
    for kind, found in report["averages"].items():
        expected = metrics.precision_recall_fscore_support(labels, guesses, average=kind, zero_division=0)
        assert list(found.values()) == pytest.approx(expected[:3], rel=1e-12), kind
    assert [row["name"] for row in report["classes"]] == CLASSES


def test_reports_are_the_same_bytes_for_any_batch_size_and_number_of_workers(run, msrun):
    for name, size in (("one", 256), ("two", 256), ("three", 7), ("four", 90)):
        assert main("evaluate", "--checkpoint", run, "--report", name, "--batch-size", size) == 0
    command = ("-m", "resnet_fn.evaluate", "--checkpoint", str(run), "--report", "workers", "--threads", "3")
    msrun(2, *command)
    for file in ("report.html", "report.json", "predictions.csv"):
        first = Path("one", file).read_bytes()
        for other in ("two", "three", "four", "workers"):
            assert Path(other, file).read_bytes() == first, f"{other}/{file}"


def test_predict_is_the_report(run, detail, photographs, capsys):
    """An image alone, and a folder, with class names: what evaluation says of the same files."""
    write_report(detail, Path("report"))
    rows = rows_of("report")
    results = predict(load_net(run), find_images([photographs / "val"]), top=3)
    for result, row in zip(results, rows, strict=True):
        assert result["file"].endswith(row["name"])
        assert [likely["class"] for likely in result["top"]] == [row[f"class{place}"] for place in (1, 2, 3)]
        assert [f"{likely['probability']:.6g}" for likely in result["top"]] == [
            row[f"probability{place}"] for place in (1, 2, 3)
        ]
    capsys.readouterr()
    assert main("predict", run, results[40]["file"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    top = results[40]["top"]
    assert line == f"{results[40]['file']}   " + "   ".join(f"{x['class']} {x['probability']:6.2%}" for x in top)
    assert main("predict", "--checkpoint", run, "--json", photographs / "val" / "bee") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["file"] for line in lines] == [result["file"] for result in results[:30]]


def by_the_card(card, path):
    """An image file as the net's input, from FILE.json alone (docs/export.md)."""
    about = card["preprocessing"]
    image = Image.open(path).convert("RGB")
    scale = about["eval_resize"] / min(image.size)
    image = image.resize([int(side * scale + 1e-9) for side in image.size], Image.Resampling.BILINEAR)
    size = about["image_size"]
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), np.float32)
    pixels = (pixels / about["full_scale"] - np.float32(about["mean"])) / np.float32(about["std"])
    return pixels.transpose(2, 0, 1)[None].astype(np.float32)


@pytest.mark.parametrize("kind", ["mindir", "onnx", "safetensors"])
@pytest.mark.parametrize("more", [[], ["--image-size", "24"]], ids=["own size", "24"])
def test_exported_files_answer_from_their_card_alone(run, photographs, kind, more, capsys):
    batch = ["--batch", "1"] if more and kind != "safetensors" else []
    out = Path(f"net.{kind}")
    assert main("export", "--checkpoint", run, "--format", kind, "--out", out, *more, *batch) == 0
    assert "verified on 90 test images, largest difference of a logit " in capsys.readouterr().out
    card = json.loads(Path(f"net.{kind}.json").read_text(encoding="utf-8"))
    size = 24 if more else 16
    assert card["classes"] == CLASSES
    assert card["input"]["shape"] == [1 if batch else None, 3, size, size]
    trained = load_net(run, image_size=size if more else 0)
    tolerance = card["verified"]["tolerance"]
    assert tolerance <= (2e-2 if trained.recipe.precision == "fp16" else 2e-4)
    assert card["verified"]["largest_difference"] <= tolerance
    if kind == "safetensors":
        import safetensors.numpy as numpy

        found = numpy.load_file(out)
        assert {p.name: p.shape for p in trained.net.get_parameters()} == {k: v.shape for k, v in found.items()}
        assert all((found[p.name] == p.asnumpy()).all() for p in trained.net.get_parameters())
        return
    file = photographs / "val" / names(photographs)[50]
    images = by_the_card(card, file)
    if kind == "mindir":
        cell = mindspore.nn.GraphCell(mindspore.load(str(out)))
        logits = cell(mindspore.Tensor(images)).asnumpy()
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
        logits = session.run(None, {session.get_inputs()[0].name: images})[0]
    assert logits.dtype == np.dtype(card["output"]["dtype"])
    exponentials = np.exp(logits[0].astype(float) - logits.max())
    (result,) = predict(trained, [file], top=3)
    expected = {likely["index"]: likely["probability"] for likely in result["top"]}
    found = exponentials / exponentials.sum()
    assert [expected[index] for index in range(3)] == pytest.approx(found, abs=tolerance)


def test_names_that_are_no_utf8_are_told_in_escapes(photographs, tmp_path):
    """Linux names are bytes: report, predictions and pictures must not fail on one that is no text."""
    root = tmp_path / "odd"
    shutil.copytree(photographs, root)
    os.rename(os.fsencode(root / "val/bee/00 ü.JPEG"), os.fsencode(root / "val/bee") + b"/00 \xff.JPEG")
    options = RunOptions(out_dir="run", data_dir=str(root), progress=False)
    train(Recipe(**{**SMALL, "epochs": 1}, dataset="imagefolder"), options)
    write_report(evaluate_in_detail("run"), Path("report"))
    assert "bee/00 \\xff.JPEG" in [row["name"] for row in rows_of("report")]
    command = [sys.executable, "-m", "resnet_fn.predict", "--checkpoint", "run", str(root / "val" / "bee")]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 30
