"""Which changes of the data a resume accepts, notes or rejects."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_fn import pack
from resnet_fn.checkpoint.run_folder import settings_of
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.input_spec import renamed
from resnet_fn.data.sources.load import load_dataset, open_dataset
from resnet_fn.data.sources.scan import check_files
from resnet_fn.run.loop import train
from resnet_fn.run.resume import data_notes
from resnet_fn.runtime.cpus import cpu_count
from resnet_fn.runtime.disk import sha256
from resnet_fn.runtime.workers import Workers
from resnet_fn.train import parse

ONE_EPOCH = shlex.split(
    "--dataset imagefolder --image-size 16 --model resnet8 --batch-size 4 --epochs 1 "
    "--max-shift 0 --max-rotation 0 --max-zoom 0 --flip --policy trivialaugment --cutmix 1 "
    "--erasing 0.3 --ema 0.8 --checkpoint-every 2 --keep-last 9 --data-threads 1 --no-progress "
    "--mode pynative --out-dir run"
)


@pytest.fixture(scope="module")
def trained(device, ten_each, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    train(*parse([*ONE_EPOCH, "--data-dir", str(ten_each), "--out-dir", str(out)]))
    return out


def test_a_class_more_or_less_is_named():
    assert renamed(("cat",), ("cat", "dog")) == "None → 'dog'"
    assert renamed(("cat", "dog"), ("cat",)) == "'dog' → None"


def test_a_renamed_class_folder_is_rejected(trained, folder, capsys, raises_line):
    """The classes are sorted by name: "zebra" puts the others' labels one lower."""

    def times():
        paths = Path("run").rglob("*")
        return {path: path.stat().st_mtime_ns for path in paths if path.name != "lock"}

    shutil.copytree(trained, "run")
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / "zebra")
    before = times()
    difference = "classes 'bee' → 'cat with a space', 'cat with a space' → 'zebra'"
    text = f"another training set than the checkpoint's ({difference})"
    words = [*ONE_EPOCH, "--data-dir", str(folder)]
    with raises_line("resume: ", text, "give the same data"):
        train(*parse(words))
    assert times() == before
    train(*parse([*words, "--allow-other-data"]))
    assert f"resuming with {text}\n" in capsys.readouterr().out


def test_stored_data_threads_become_this_machines_cpus(trained, capsys, raises_line):
    shutil.copytree(trained, "run")
    path = Path("run/config.json")
    cpus = cpu_count()
    config = json.loads(path.read_text())
    config["options"]["data_threads"] = 999
    path.write_text(json.dumps(config))
    train(*parse(["--resume", "run", "--epochs", "2"]))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"data_threads 999 becomes {cpus}, the number of CPUs here" in printed
    assert settings_of("run")["options"]["data_threads"] == 999  # for the next machine
    with raises_line("data_threads: 999 is more than", f"give at most {cpus}"):
        train(*parse(["--resume", "run", "--epochs", "3", "--data-threads", "999"]))


RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


@pytest.fixture
def photographs(folder):
    return check_files(load_dataset(RECIPE, str(folder)))


def saved(feed):
    """Of a checkpoint's JSON state what the data's are compared with."""
    return {"feed": feed, "dataset": {"classes": []}}


def test_the_data_key_ignores_threads_and_workers(photographs):
    two = replace(photographs, train=replace(photographs.train, threads=2))
    feed = make_feed(two, RECIPE, Workers(0, 2))
    key = make_feed(photographs, RECIPE).reproducibility_key
    names = "\0".join(photographs.train.names).encode()
    # once a run: it hashes the names of all files
    assert feed.reproducibility_key is feed.reproducibility_key
    assert (
        feed.reproducibility_key
        == key
        == {
            "samples": 21,
            "files": sha256(names + photographs.train.labels.tobytes()),
            "contents": sha256(photographs.train.sizes.tobytes()),
            "feed": "float32",
        }
    )
    assert data_notes(saved(key), (), feed, False) == []
    (line,) = data_notes(saved({**key, "feed": "uint8"}), (), feed, False)
    assert line == "resuming with --feed float32 instead of uint8: some bits of the results differ"


def test_resuming_on_other_data_is_rejected_or_noted(photographs, raises_line):
    turned = replace(photographs.train, labels=photographs.train.labels[::-1].copy())
    feed, other = (
        make_feed(replace(photographs, train=train), RECIPE)
        for train in (photographs.train, turned)
    )
    known = feed.reproducibility_key
    for key, difference in (
        ({**known, "samples": 20}, "samples 20 → 21"),
        (other.reproducibility_key, "other file names or classes"),
    ):
        text = f"another training set than the checkpoint's ({difference})"
        with raises_line("resume: ", text, "the same data", "--out-dir", "--allow-other-data"):
            data_notes(saved(key), (), feed, False)
        assert data_notes(saved(key), (), feed, True) == [f"resuming with {text}"]


@pytest.mark.parametrize("dataset", ["imagefolder", "mindrecord"])
def test_two_class_folders_swapped_whole_are_noticed(dataset, folder, raises_line):
    """Their files have equal names: they differ by their sizes, of records the shards' sha256."""

    recipe = RECIPE.changed(dataset=dataset)

    def feed_of(out):
        if dataset == "mindrecord":
            pack.main([str(folder), out, "--shards", "1", "--threads", "1", "--no-progress"])
        data_dir = out if dataset == "mindrecord" else str(folder)
        return make_feed(open_dataset(recipe, data_dir), recipe)

    before = feed_of("one").reproducibility_key
    for old, new in (("bee", "x"), ("éléphant", "bee"), ("x", "éléphant")):
        (folder / "train" / old).rename(folder / "train" / new)
    with raises_line("(other contents of files with the same names); give the same data"):
        data_notes(saved(before), (), feed_of("other"), False)
