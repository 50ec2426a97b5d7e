"""What a run that was trained says in evaluations, reports and predictions."""

from pathlib import Path

import pytest

from resnet_fn import pack
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.evaluate import evaluate_in_detail
from resnet_fn.evaluation.image_names import find_images
from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.evaluation.predict import predict
from resnet_fn.evaluation.task import all_metrics
from resnet_fn.plot import read_events
from resnet_fn.report.writer import write_report
from resnet_fn.run.loop import train

pytestmark = pytest.mark.slow
SMALL = {"model": "resnet8", "image_size": 16, "batch_size": 12, "epochs": 2, "learning_rate": 0.02}
KINDS = {
    "imagefolder": {"dataset": "imagefolder", "eval_resize": 20},
    "mindrecord-fp16": {"dataset": "mindrecord", "precision": "fp16", "ema": 0.8},
}


@pytest.fixture(scope="module", params=list(KINDS))
def trained_run(request, device, photographs, tmp_path_factory):
    """A run folder: two epochs on the photographs, as files or packed."""
    folder = tmp_path_factory.mktemp("run") / "run"
    data = photographs
    if KINDS[request.param]["dataset"] == "mindrecord":
        data = folder.parent / "packed"
        assert pack.main([str(photographs), str(data), "--shards", "2", "--no-progress"]) == 0
    train(
        Recipe(**SMALL, **KINDS[request.param]),
        RunOptions(out_dir=str(folder), data_dir=str(data), progress=False),
    )
    return folder


@pytest.fixture(scope="module")
def detail(trained_run):
    return evaluate_in_detail(trained_run)


@pytest.fixture(scope="module")
def report(detail, tmp_path_factory):
    """The folder with the run's report."""
    folder = tmp_path_factory.mktemp("report")
    write_report(detail, folder)
    return folder


def test_evaluation_gives_the_scores_of_training(trained_run, detail):
    last = [event for event in read_events(trained_run) if event["event"] == "eval"][-1]
    scores = all_metrics(detail.scores, detail.dataset.test.labels, len(detail.dataset.classes))
    assert scores == {key: last[key] for key in scores}


def test_reports_have_equal_bytes_for_any_batch_size(trained_run, report, msrun, main):
    """70 in place of 256."""
    words = ("--checkpoint", str(trained_run), "--report")
    assert main("evaluate", *words, "two", "--batch-size", 70) == 0
    names = ["two"]
    if load_run(trained_run).recipe.dataset == "mindrecord":
        names.append("workers")
        msrun(2, "-m", "resnet_fn.evaluate", *words, "workers", "--threads", "3")
    for file in ("report.html", "report.json", "predictions.csv"):
        first = (report / file).read_bytes()
        for other in names:
            assert Path(other, file).read_bytes() == first, f"{other}/{file}"


def test_predict_gives_the_answers_of_the_report(
    trained_run, report, photographs, capsys, main, rows_of
):
    """An image alone, and a folder, with class names: what evaluation says of the same files."""
    rows = rows_of(report / "predictions.csv")
    results = predict(load_run(trained_run), find_images([photographs / "val"]), top=3)
    for result, row in zip(results, rows, strict=True):
        assert result["file"].endswith(row["name"])
        assert len(result["top"]) == 3
        for place, likely in enumerate(result["top"], 1):
            assert likely["class"] == row[f"class{place}"]
            assert f"{likely['probability']:.6g}" == row[f"probability{place}"]
    capsys.readouterr()
    assert main("predict", trained_run, results[40]["file"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    top = results[40]["top"]
    assert line == f"{results[40]['file']}   " + "   ".join(
        f"{x['class']} {x['probability']:6.2%}" for x in top
    )
