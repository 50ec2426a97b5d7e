"""`predict` and its command: images of any kind, lists, CSV and JSON."""

import dataclasses
import io
import itertools
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest
from mindspore import Tensor
from PIL import Image, ImageSequence

from resnet_fn.data.images import prepare
from resnet_fn.evaluation.image_names import find_images, read_list
from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.evaluation.predict import predict, predictions
from resnet_fn.evaluation.prediction_table import table_row

pytestmark = pytest.mark.usefixtures("device")


def column(results, key):
    return [result[key] for result in results]


def test_a_prediction_does_not_depend_on_other_images(trained, digits_png):
    files = find_images([digits_png])
    assert predict(trained, files)[67] == predict(trained, [files[67]])[0]
    assert predict(str(trained.checkpoint.path), files[67]) == predict(trained, [files[67]])
    logits = trained.net(Tensor(trained.preprocess(files[67])))
    (likeliest,) = predict(trained, files[67], top=1)[0]["top"]
    assert likeliest["index"] == logits.argmax()


def test_a_loaded_net_is_compiled_once(trained, digits_png):
    """MindSpore keeps what it compiles until the process ends: 15 MB in each call, where each
    compiles.
    """
    files = find_images([digits_png])
    first = predict(trained, files)
    predict(trained, files)
    memory = psutil.Process().memory_info
    before = memory().rss
    for _ in range(4):
        assert predict(trained, files) == first
    assert memory().rss - before < 10 * 2**20


def test_what_holds_no_images_is_named(digits_png):
    for message in ("does not exist; did you mean images/59.png", "contains no images"):
        with pytest.raises(ValueError, match=f"^images/99.png: {message}"):
            find_images(["images/99.png"])
        Path("images/99.png").mkdir(exist_ok=True)


def test_a_named_device_is_never_opened(trained, digits_png):
    """Devices and FIFOs in a folder: `test_an_unreadable_file_stops_no_other_image`."""
    Path("images/05b.png").symlink_to("nowhere")
    Path("images/05c.png").mkdir()  # a folder is looked into, whatever its name
    results = predict(trained, [*find_images([digits_png]), "/dev/zero"])
    assert len(results) == 72
    link, device = [result["error"] for result in results if "error" in result]
    assert link.startswith("images/05b.png: cannot be read (No such file")
    assert device.startswith("/dev/zero: cannot be read (not a regular file")


def test_a_bad_file_is_named_others_are_predicted(trained, digits_png, says):
    """To the bit: a bad file keeps its place, so that the good ones keep theirs."""
    Path("images/00a.png").write_bytes(b"not a png")
    Path("images/30a.png").write_bytes(Path("images/01.png").read_bytes()[:60])
    Path("images/30b.gif").write_bytes(b"")
    bad = {"images/00a.png": "not an image", "images/30a.png": "", "images/30b.gif": "empty"}
    files = find_images([digits_png])
    results = predict(trained, files)
    assert column(results, "file") == files
    errors = {result["file"]: result["error"] for result in results if "error" in result}
    assert errors.keys() == bad.keys()
    for path, error in errors.items():
        says(error, f"{path}: cannot be read ({bad[path]}", "); fix or remove the file")
    for path in bad:  # white pictures in their place
        Image.new("L", (8, 8), 255).save(path)
    for there, whole in zip(results, predict(trained, files), strict=True):
        assert there == whole or there["file"] in bad


def test_csv_lists_all_files_by_name_or_doubt(trained, digits_png, capsys, main, rows_of):
    """The figures of `predict`; whoever looks through a folder begins where the net doubts; no file
    is missing.
    """
    Path("images/a,b ü.png").write_bytes(b"no picture")
    results = predict(trained, find_images([digits_png]), top=3)
    run = trained.checkpoint.path
    for flags in (["by name.csv"], ["out.csv", "--sort", "doubt"]):
        with pytest.raises(ValueError, match=r"^1 of 71 images cannot be read; the lines above "):
            main("predict", run, digits_png, "--top", 3, "--csv", *flags)
    with pytest.raises(ValueError, match=r"^/dev/full: cannot be written \(No space left"):
        main("predict", run, "images/00.png", "--csv", "/dev/full")
    out, err = capsys.readouterr()
    assert err.count("images/a,b ü.png: cannot be read (not an image)") == 2
    assert out.splitlines() == [
        "70 predictions in by name.csv",
        "70 predictions in out.csv, the least certain first",
    ]
    rows = rows_of("by name.csv")
    doubted = rows_of("out.csv")
    assert [[*row.values()] for row in rows] == [table_row(result, 3) for result in results]
    names = ("class", "probability", "class2", "probability2", "class3", "probability3")
    assert list(rows[0]) == ["file", *names, "error"]
    for number, likely in zip(("", "2", "3"), results[0]["top"], strict=True):
        assert rows[0][f"class{number}"] == likely["class"]
        assert rows[0][f"probability{number}"] == f"{likely['probability']:.6g}"
    probabilities = [float(row["probability"]) for row in doubted[:-1]]
    assert probabilities == sorted(probabilities)
    assert doubted[-1]["file"] == "images/a,b ü.png"
    assert sorted(column(doubted, "file")) == sorted(column(rows, "file"))
    no_text = os.fsdecode(b"\xff.png")
    assert table_row({"file": no_text, "error": "bad"}, 1) == ["\\xff.png", "", "", "bad"]


def test_a_heic_files_error_names_a_conversion_command(trained):
    Path("phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (result,) = predict(trained, "phone.heic")
    assert "not an image" in result["error"]
    assert "magick mogrify -format jpg *.heic" in result["error"]


def probabilities(results):
    """Of the class with each index, [images, classes]."""
    tops = [sorted(top, key=lambda row: row["index"]) for top in column(results, "top")]
    return [column(top, "probability") for top in tops]


def test_few_images_are_computed_8_at_a_time(trained, digits_png, monkeypatch):
    """And many 64 at a time. They predict as many, except for rounding."""
    computed = []
    step = trained.eval_step

    def recorded(images, labels):
        computed.append(len(images))
        return step(images, labels)

    monkeypatch.setitem(vars(trained), "eval_step", recorded)
    files = find_images([digits_png])[:64]
    together = probabilities(predict(trained, files, top=10))
    for count in (1, 8, 9):
        few = probabilities(predict(trained, files[:count], top=10))
        np.testing.assert_allclose(few, together[:count], atol=1e-6)
    assert computed == [64, 8, 8, 64]


def test_an_endless_iterator_is_predicted_as_it_comes(trained, digits_png):
    """The images of an endless iterator are predicted; those that are ahead are few."""
    files, asked = find_images([digits_png]), []

    def endless():
        while True:
            asked.append(files[len(asked) % 70])
            yield asked[-1]

    found = predictions(trained, endless())
    names = column(itertools.islice(found, 200), "file")
    assert names == [files[number % 70] for number in range(200)]
    assert len(asked) <= 256 + 4 * os.cpu_count()
    found.close()


def test_memory_does_not_grow_with_more_images(trained, digits_png):
    files = find_images([digits_png])
    peaks = []
    for repeats in (2, 20):  # 140 and 1,400 images
        tracemalloc.start()
        found = predictions(trained, iter(files * repeats))
        assert sum("top" in one for one in found) == 70 * repeats
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 300_000


@pytest.mark.slow
def test_the_command_prints_before_stdin_has_ended(run, digits_png):
    """A real process, whose list comes through a pipe."""
    command = [sys.executable, "-m", "resnet_fn.predict", run, "-", "--json"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    names = find_images([digits_png]) * 2
    with subprocess.Popen(command, **pipes, text=True, bufsize=1) as process:
        process.stdin.write("".join(f"{name}\n" for name in names[:100]))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["file"] == names[0]
        process.stdin.write("".join(f"{name}\n" for name in names[100:]))
        process.stdin.close()
        rest = process.stdout.readlines()
    assert column(map(json.loads, rest), "file") == names[1:]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("path", "words"),
    [("/proc/self/mem", "cannot be read (|give another list"), ("none", "names no images; write")],
)
@pytest.mark.parametrize("task", [{}, {"dataset": "imagefolder", "multi_label": True}])
def test_a_failed_predict_keeps_the_old_table(path, words, task, make_run, main, raises_line):
    """And the list is named, not the table."""
    make_run(model="resnet8", image_size=8, **task)
    Path("none").write_text("# none\n")
    Path("out.csv").write_text("file,class,probability,error\nold\n")
    with raises_line(f"{path}: ", *words.split("|")):
        main("predict", "run", "--list", path, "--csv", "out.csv")
    assert Path("out.csv").read_text().endswith("old\n")


def test_missing_paths_are_errors_or_rows(trained, digits_png, raises_line):
    """An iterator's path is looked at when its turn comes, and does not stop the others."""
    with raises_line("no.png: does not exist"):
        predict("no run", ["images/00.png", "no.png"])
    results = predict(trained, iter(["no.png", "images/00.png", "images/deeper"]))
    assert column(results, "file")[:3] == ["no.png", "images/00.png", "images/deeper/65.png"]
    assert ["error" in result for result in results] == [True] + [False] * 6


LISTS = {
    "names.txt": b"# two digits\n\nimages/00.png\nimages/01.png\n",
    "classes.txt": b"images/00.png 7\r\nimages/01.png\t2\r\n",
    "table.csv": b'path,label\n"images/00.png",7\nimages/01.png,2\n',
    "semicolons.csv": b"\xef\xbb\xbfFile;Label\nimages/00.png;7\nimages\\01.png;2\n",
    "images/beside.lst": b"00.png\n01.png\n",
    "powershell.txt": "images\\00.png\r\nimages\\01.png\r\n".encode("utf-16"),
    "empty.list": b"images/00.png\0\0images/01.png\0\0",
    "attributes.txt": b"images/00.png -1 1 1\nimages/01.png 1 -1 1\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_many_formats_name_their_images(name, digits_png):
    Path(name).write_bytes(LISTS[name])
    assert list(read_list(name)) == ["images/00.png", "images/01.png"]


def test_a_folder_in_a_list_hides_no_image(digits_png):
    Path("image").mkdir()
    for index, name in enumerate(("image 1.png", "image,2.png")):
        os.rename(f"images/{index:02d}.png", name)
    Path("a.txt").write_text("image 1.png\nimage 1.png 7\nimage,2.png\nimage 3.png\n")
    names = ["image 1.png", "image 1.png", "image,2.png", "image 3.png"]  # the last is missing
    assert list(read_list("a.txt")) == names


def test_names_of_print0_may_have_line_breaks(digits_png):
    os.rename("images/00.png", "images/a\nb.png")
    assert os.system("find images -name '[a0]*.png' -print0 > found.list") == 0
    assert sorted(read_list("found.list"))[-1] == "images/a\nb.png"
    assert len(list(read_list("found.list"))) == 10


def test_names_in_a_list_may_be_strange(run, digits_png, capsys, main, monkeypatch):
    """Spaces, commas, a leading #, bytes that are not UTF-8; a folder and a missing file are
    named.
    """
    names = ["a b 7.png", "c,d;e.png", "#1.png", " f.png", os.fsdecode(b"\xff.png")]
    for name in names:
        os.rename(f"images/{names.index(name):02d}.png", name)
    text = os.fsencode("\n".join([*names, "images", "no.png"]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    with pytest.raises(ValueError, match=r"^2 of 7 images cannot be read"):
        main("predict", run, "-", "--json")
    out, err = capsys.readouterr()
    assert err.count("predict: no.png: cannot be read (No such file or directory)") == 1
    lines = [json.loads(line) for line in out.splitlines()]
    assert column(lines, "file") == [*names, "images", "no.png"]
    assert ["error" in line for line in lines] == [False] * 5 + [True] * 2


def test_a_first_line_may_name_a_missing_image(digits_png):
    """It is no header."""
    Path("wrong.txt").write_text("nowhere\nimages/00.png 3\n")
    assert list(read_list("wrong.txt")) == ["nowhere", "images/00.png"]


def test_a_missing_list_is_named(run, main, raises_line):
    with raises_line("zzzzzzzzzzzz.txt: does not exist; give a list of images"):
        main("predict", run, "zzzzzzzzzzzz.txt")


def test_arrays_and_pil_images_predict_like_their_files(trained, digits_png):
    files = find_images([digits_png])[:9]
    pictures = [Image.open(file) for file in files]
    arrays = [np.asarray(picture) for picture in pictures]
    wanted = column(predict(trained, files), "top")
    for images in (pictures, arrays, np.stack(arrays)[..., None], iter(arrays)):
        results = predict(trained, images)
        assert column(results, "top") == wanted
        assert column(results, "file") == [f"images[{number}]" for number in range(9)]
    for one in (pictures[3], arrays[3], np.stack([arrays[3]] * 3, -1)):
        assert predict(trained, one)[0]["top"] == predict(trained, files[3])[0]["top"]
    mixed = predict(trained, [files[0], arrays[1], Path(files[2])])
    assert column(mixed, "file") == [files[0], "images[1]", files[2]]
    assert column(mixed, "top") == wanted[:3]


def test_frames_that_share_memory_are_predicted_apart(trained, digits_png):
    """PIL's iterator over an animation, and a camera's, change the image that they gave."""
    files = find_images([digits_png])[:12]
    arrays, buffer = [np.asarray(Image.open(file)) for file in files], np.empty((8, 8), np.uint8)

    def frames():
        for array in arrays:
            buffer[:] = array
            yield buffer

    wanted = column(predict(trained, arrays), "top")
    assert column(predict(trained, frames()), "top") == wanted
    first, *others = (Image.fromarray(array) for array in arrays)
    first.save("digits.tiff", save_all=True, append_images=others)
    with Image.open("digits.tiff") as animation:
        results = predict(trained, ImageSequence.Iterator(animation))
    assert column(results, "top") == wanted


@pytest.mark.parametrize(
    ("images", "what"),
    [
        (np.zeros((8, 8, 3), np.float32), "images[0]: float32 [8, 8, 3]"),
        (np.zeros((2, 3, 8, 9), np.uint8), "images[0]: uint8 [3, 8, 9]"),
        ([np.zeros((0, 8), np.uint8)], "images[0]: uint8 [0, 8]"),
        (Tensor(np.zeros((2, 8, 8))), "images[0]: Tensor"),
        (b"\xff\xd8", "images[0]: bytes"),
        (7, "images[0]: int"),
    ],
)
def test_what_is_no_image_is_rejected_with_words(images, what, trained, raises_line):
    with raises_line(what, "is not an image; give a path, a PIL image, or uint8 [H, W, 3] (RGB"):
        predict(trained, images)


def test_predict_enlarges_a_picture_as_evaluation_does(make_run):
    trained = load_run(make_run(model="resnet8", image_size=16), image_size=16)
    images = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    wanted = prepare(images, 16, dataclasses.replace(trained.input, full_scale=255.0))
    np.testing.assert_allclose(trained.preprocess(images[0]), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["images/00.png", "run"], ["'images/00.png' is not a run", "'run' is", "give RUN first"]),
        (["images", "run"], ["'images' is not a run", "'run' is", "give RUN first"]),
        (["run", "https://x.org/cat.jpg"], ["x.org/cat.jpg", "is an address", "download it"]),
        (["https://x.org/run", "images"], ["x.org/run", "is an address", "download it"]),
    ],
)
def test_swapped_arguments_and_addresses_are_named_with_fix(
    words, parts, run, digits_png, main, raises_line
):
    with raises_line(*parts):
        main("predict", *words)


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse", "nested"])
def test_an_unreadable_file_stops_no_other_image(kind, foreign, trained, digits_png):
    foreign(kind, "images/00.png")
    results = predict(trained, "images")
    assert [result["file"] for result in results if "error" in result] == ["images/00.png"]
    assert len(results) == 70


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse"])
def test_what_is_no_list_ends_with_an_error(kind, foreign, raises_line):
    foreign(kind, "list.txt")
    with raises_line("list.txt: ", "; give "):
        list(read_list("list.txt"))


def test_a_line_that_never_ends_is_an_error(raises_line):
    Path("list.txt").write_text("a" * 2_000_000)
    with raises_line("list.txt: is no list of paths", "give a text file"):
        list(read_list("list.txt"))
