import json
import os
from pathlib import Path

import pytest
from mindspore import Tensor
from PIL import Image

from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.evaluation.predict import find_images, predict, results_csv
from resnet_fn.report.writer import write_report

pytestmark = pytest.mark.usefixtures("device")


def test_a_prediction_does_not_depend_on_company(run, digits_png):
    trained = load_run(run)
    files = find_images([digits_png])
    assert predict(trained, files)[67] == predict(trained, [files[67]])[0]
    assert predict(str(run), files[67]) == predict(trained, [files[67]])
    logits = trained.net(Tensor(trained.preprocess(files[67]))).asnumpy()[0]
    assert trained.classes[logits.argmax()] == predict(trained, files[67], top=1)[0]["top"][0]["class"]


def test_a_loaded_net_is_compiled_once(run, digits_png):
    """MindSpore keeps what it compiles until the process ends: 15 MB in each call, where each compiles."""
    trained, files = load_run(run), find_images([digits_png])
    first = predict(trained, files)
    predict(trained, files)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    before = resident()
    for _ in range(4):
        assert predict(trained, files) == first
    assert resident() - before < 10


def test_what_holds_no_images_is_named(digits_png):
    for message in ("does not exist; did you mean images/59.png", "contains no images"):
        with pytest.raises(ValueError, match=f"^images/99.png: {message}"):
            find_images(["images/99.png"])
        Path("images/99.png").mkdir(exist_ok=True)


def test_what_is_no_regular_file_is_a_bad_file_and_never_opened(run, digits_png):
    """Reading a FIFO or a device would never end, whether it is found in a folder or named."""
    os.mkfifo("images/05a.png")
    Path("images/05b.png").symlink_to("nowhere")
    Path("images/05c.png").mkdir()  # a folder is looked into, whatever its name
    Path("images/05d.png").symlink_to("/dev/zero")
    results = predict(run, [*find_images([digits_png]), "/dev/zero"])
    assert len(results) == 74
    errors = {result["file"]: result["error"] for result in results if "error" in result}
    assert list(errors) == ["images/05a.png", "images/05b.png", "images/05d.png", "/dev/zero"]
    for file, reason in zip(errors, ("not a regular file", "No such file", "not a regular", "not a reg"), strict=True):
        assert errors[file].startswith(f"{file}: cannot be read ({reason}")


def test_a_bad_file_is_named_and_the_others_go_on(run, digits_png):
    """To the bit: a bad file keeps its place, so that the good ones keep theirs."""
    trained = load_run(run)
    Path("images/00a.png").write_bytes(b"not a png")
    Path("images/30a.png").write_bytes(Path("images/01.png").read_bytes()[:60])
    Path("images/30b.gif").write_bytes(b"")
    bad = {"images/00a.png": "not an image", "images/30a.png": "", "images/30b.gif": "not an image"}
    files = find_images([digits_png])
    results = predict(trained, files)
    assert [result["file"] for result in results] == [str(path) for path in files]
    assert {result["file"] for result in results if "error" in result} == set(bad)
    for result in results:
        if "error" in result:
            path = result["file"]
            assert result["error"].startswith(f"{path}: cannot be read ({bad[path]}")
            assert result["error"].endswith("); fix or remove the file")
    for path in bad:  # white pictures in their place
        Image.new("L", (8, 8), 255).save(path)
    for there, whole in zip(results, predict(trained, files), strict=True):
        assert there == whole or there["file"] in bad


def test_a_table_of_all_files_the_least_certain_first(run, digits_png, capsys, main, rows_of):
    """The figures of `predict`; whoever looks through a folder begins where the net doubts; no file is missing."""
    Path("images/a,b ü.png").write_bytes(b"no picture")
    results = predict(load_run(run), find_images([digits_png]), top=3)
    for flags in (["by name.csv"], ["out.csv", "--sort", "doubt"]):
        with pytest.raises(ValueError, match=r"^1 of 71 images cannot be read; the lines above "):
            main("predict", run, digits_png, "--top", 3, "--csv", *flags)
    with pytest.raises(ValueError, match=r"^/dev/full: cannot be written \(No space left"):
        main("predict", run, digits_png, "--csv", "/dev/full")
    assert capsys.readouterr().out.splitlines() == [
        "70 predictions in by name.csv",
        "70 predictions in out.csv, the least certain first",
    ]
    rows, doubted = rows_of("by name.csv"), rows_of("out.csv")
    for row, result in zip(rows, results, strict=True):
        if "error" not in result:
            assert row["file"] == result["file"]
            likely = [(row[f"class{k}"], row[f"probability{k}"]) for k in ("", "2", "3")]
            assert likely == [(x["class"], f"{x['probability']:.6g}") for x in result["top"]]
    (bad,) = [row for row in rows if row["error"]]
    assert bad["file"] == "images/a,b ü.png"
    assert "cannot be read (not an image)" in bad["error"]
    assert bad["class"] == bad["probability"] == ""
    assert doubted[-1] == bad
    probabilities = [float(row["probability"]) for row in doubted[:-1]]
    assert probabilities == sorted(probabilities)
    assert sorted(row["file"] for row in doubted) == sorted(row["file"] for row in rows)
    no_text = b"\xff.png".decode("utf-8", "surrogateescape")
    assert results_csv([{"file": no_text, "error": "bad"}]) == "file,class,probability,error\n\\xff.png,,,bad\n"


@pytest.mark.slow
def test_predict_is_the_report(trained_run, detail, photographs, capsys, main, rows_of):
    """An image alone, and a folder, with class names: what evaluation says of the same files."""
    write_report(detail, Path("report"))
    rows = rows_of("report/predictions.csv")
    results = predict(load_run(trained_run), find_images([photographs / "val"]), top=3)
    for result, row in zip(results, rows, strict=True):
        assert result["file"].endswith(row["name"])
        assert [likely["class"] for likely in result["top"]] == [row[f"class{place}"] for place in (1, 2, 3)]
        assert [f"{likely['probability']:.6g}" for likely in result["top"]] == [
            row[f"probability{place}"] for place in (1, 2, 3)
        ]
    capsys.readouterr()
    assert main("predict", trained_run, results[40]["file"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    top = results[40]["top"]
    assert line == f"{results[40]['file']}   " + "   ".join(f"{x['class']} {x['probability']:6.2%}" for x in top)
    assert main("predict", "--checkpoint", trained_run, "--json", photographs / "val" / "bee") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["file"] for line in lines] == [result["file"] for result in results[:30]]


def test_a_name_that_is_not_utf8_is_printed_in_escapes(run, digits_png, python):
    os.rename(b"images/03.png", b"images/\xff.png")
    done = python("-m", "resnet_fn.predict", run, os.fsdecode(b"images/\xff.png"))
    assert done.stdout.startswith("images/\\udcff.png   ")


def test_a_picture_that_needs_a_conversion_is_told_how(run):
    Path("phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (result,) = predict(run, "phone.heic")
    assert "not an image" in result["error"]
    assert "magick mogrify -format jpg *.heic" in result["error"]
