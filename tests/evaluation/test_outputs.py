"""What commands write: nothing of the user's is replaced, and no cell is a formula."""

import csv
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.data.sources.lists import load_lists
from resnet_fn.evaluation.evaluate import evaluate_in_detail
from resnet_fn.evaluation.export import export
from resnet_fn.evaluation.image_names import read_list
from resnet_fn.report.writer import predictions_csv

pytestmark = pytest.mark.usefixtures("device")

USERS = b"of the user"
CLASSES = ("=1+1", "+a", "-2", "@b", "'=c", "d", "-e", "=1;=2", "'", "9")


@pytest.fixture
def users():
    """users(path) makes a file of the user's; what it holds is compared after the test."""
    paths = []

    def make(path):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(USERS)
        paths.append(path)

    yield make
    assert all(path.read_bytes() == USERS for path in paths)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        # as if the user forgot the name of the table, or took --csv for --list
        ("a.png", "predict run images/00.png --csv a.png"),
        ("labels.csv", "predict run images/00.png --csv labels.csv"),
        ("report/report.html", "evaluate run --report report"),
        ("report/report.json", "evaluate run --report report"),
        ("report/predictions.csv", "evaluate run --report report"),
        ("package.json", "evaluate run --json package.json"),
        ("package.json", "inspect.__main__ run --json package.json"),
        ("package.json", "doctor.__main__ --json package.json"),
    ],
)
def test_no_command_replaces_a_file_of_the_user(
    path, command, users, run, digits_png, main, raises_line
):
    users(path)
    before = sorted(Path().rglob("*"))
    words = command.split()
    with raises_line(f"{words[-2]}: {path} exists", "give another path", kind=UsageError):
        main(*words)
    assert sorted(Path().rglob("*")) == before


def test_results_replace_earlier_results(run, digits_png, main):
    """An empty file, as of mktemp, and a device, too."""
    Path("result.json").touch()
    for _ in range(2):
        assert main("predict", run, "images/00.png", "--csv", "own.csv") == 0
        export(run, "own.safetensors", images=np.zeros((2, 1, 8, 8), np.float32))
        assert main("evaluate", run, "--json", "result.json") == 0
        assert main("inspect.__main__", run, "--json", "arrays.json") == 0
    assert main("inspect.__main__", run, "--json", "/dev/null") == 0


def test_a_link_to_results_stays_a_link(run, main):
    Path("link.json").symlink_to("result.json")
    assert main("inspect.__main__", run, "--json", "link.json") == 0
    assert Path("link.json").is_symlink()
    assert "parameters" in json.loads(Path("result.json").read_text())


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_descriptor_keeps_its_file(name):
    """As `evaluate RUN --json /dev/stdout > out` has it."""
    if name == "/dev/stdout" and not Path(name).is_symlink():
        pytest.skip("/dev/stdout leads to no descriptor")
    text = f"from resnet_fn.runtime.outputs import write_output; write_output({name!r}, '1')"
    with open("out", "w") as out:
        subprocess.run([sys.executable, "-c", text], stdout=out, check=True)
        assert os.stat("out").st_ino == os.fstat(out.fileno()).st_ino
    assert Path("out").read_text() == "1"
    assert os.listdir() == ["out"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_file_in_a_readonly_folder_is_written():
    Path("result.json").touch()
    Path("result.json").chmod(0o666)
    Path().chmod(0o755)
    text = (
        "import os; from resnet_fn.runtime.outputs import write_output; os.setuid(65534); "
        "write_output('result.json', '1')"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
    assert Path("result.json").read_text() == "1"


def test_a_killed_export_can_be_repeated(run, monkeypatch):
    """The power fails between the two files."""
    images = np.zeros((2, 1, 8, 8), np.float32)
    replace = Path.replace

    def fail_after(path, target):
        replace(path, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail_after)
        with pytest.raises(KeyboardInterrupt):
            export(run, "net.safetensors", images=images)
    export(run, "net.safetensors", images=images)


@pytest.mark.parametrize("path", ["net.safetensors", "net.safetensors.json"])
def test_export_replaces_only_what_it_wrote(path, users, run, raises_line):
    users(path)
    with raises_line(f"out: {path} exists", "give another path"):
        export(run, "net.safetensors")
    assert sorted(os.listdir()) == [path, "run"]


def test_labels_are_read_back_and_no_formulas(run):
    """The labels of predictions.csv are those of a list of images."""
    detail = evaluate_in_detail(run)
    spec = dataclasses.replace(detail.trained.input, classes=CLASSES)
    named = dataclasses.replace(detail.trained, input=spec)
    text = predictions_csv(dataclasses.replace(detail, trained=named))
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for row in rows for cell in row)
    with open("list.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label"])
        for index, row in enumerate(rows):
            Path(f"{index}.png").touch()
            table.writerow([f"{index}.png", row[header.index("label")]])
    dataset = load_lists(".", "", "list.csv", CLASSES)
    assert dataset.test.labels.tolist() == load_digits().test.labels.tolist()


def test_a_predictions_table_is_a_list_of_images(run, digits_png, main, rows_of):
    for name in ("=1.png", "+2.png", "-3.png", "@4.png", "'=5.png"):
        shutil.copy("images/00.png", name)
    names = sorted(path for path in os.listdir() if path.endswith(".png"))
    Path("list.txt").write_text("".join(f"{name}\n" for name in names))
    assert main("predict", run, "list.txt", "--csv", "out.csv") == 0
    assert [row["file"] for row in rows_of("out.csv")] == [f"'{name}" for name in names]
    assert list(read_list("out.csv")) == names


def test_names_with_codes_are_shown_and_not_obeyed(run, digits_png, main, capsys, raises_line):
    codes = "\x1b[31mx\n" + os.fsdecode(b"\xff")
    shutil.copy("images/00.png", f"{codes}.png")
    Path(f"{codes}bad.png").write_text("no image")
    Path(f"{codes}empty").mkdir()
    with raises_line("1 of 2 images cannot be read"):
        main("predict", run, f"{codes}.png", f"{codes}bad.png")
    out, err = capsys.readouterr()
    assert out.startswith(r"\x1b[31mx\n\xff.png   ")
    assert err.startswith(r"predict: \x1b[31mx\n\xffbad.png: cannot be read (not an image)")
    assert "\x1b" not in out + err
    assert (out.count("\n"), err.count("\n")) == (1, 1)
