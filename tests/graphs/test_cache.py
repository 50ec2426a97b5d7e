"""Graphs of earlier processes: the same bits as compiled ones, for what they are made of and nothing else."""

import json
import math
import os
import pwd
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from mindspore import Tensor

from resnet_fn.graphs import cache as cache_module
from resnet_fn.graphs.cache import CompileCache, Exchange, cache_folder, open_cache, prune, read_graph, write_graph
from resnet_fn.graphs.key import Ingredients
from resnet_fn.runtime import versions

pytestmark = pytest.mark.usefixtures("device")

measured = pytest.mark.skipif(not versions.compile_cache_is_exact(), reason="kept in measured versions alone")
DRIVER = str(Path(__file__).parent.parent / "run" / "drivers" / "cached_updates.py")

NONE, PLAIN = {"norm": "none"}, {"nesterov": False}
RECIPES = [
    {},
    {"optimizer": "adamw", "ema": 0.9, "ema_every": 2, "label_smoothing": 0.1, **PLAIN},
    {"optimizer": "lamb", "clip_norm": 0.0, "mixup": 0.2, **PLAIN},
    {"optimizer": "lars", "class_weights": "balanced", **NONE, **PLAIN},
    {"precision": "fp16", "loss_scale": 256.0, "loss_scale_interval": 1},
    {"drop_path": 0.2, "dropout": 0.3, "momentum": 0.0, **PLAIN, "loss": "focal", "cutmix": 1.0},
    {"loss": "bce", "freeze": "stem,layer1", "head_learning_rate": 0.01, **NONE},
    {"layer_decay": 0.75, "decay_all": True, "optimizer": "adam", **PLAIN, "options": {"accumulate": 3}, "ema": 0.8},
]


@pytest.fixture(scope="module")
def run(python):
    """run(recipes, kind, cache): what each recipe's updates gave in a process of their own."""

    def updates(recipes, kind, cache):
        done = python(DRIVER, json.dumps(recipes), kind, seconds=600, XDG_CACHE_HOME=str(cache))
        assert "warning" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return updates


def bits(results):
    return [result["bits"] for result in results]


def said(results):
    return [result["said"] for result in results]


@measured
@pytest.mark.slow
def test_recipes_of_every_kind_compute_the_same_bits_from_the_cache(run, tmp_path):
    """And another seed starts from the first one's graphs."""
    more = [*RECIPES, {"seed": 3}]
    plain, cold, warm = run(more, "none", tmp_path), run(RECIPES, "cache", tmp_path), run(more, "cache", tmp_path)
    assert bits(plain) == bits(warm)
    assert bits(plain)[: len(RECIPES)] == bits(cold)
    assert len(set(bits(warm))) == len(more)
    assert all(math.isfinite(loss) for result in warm for loss in result["losses"])
    assert said(cold) == [["compiling…"]] * len(RECIPES)
    assert said(warm) == [[f"compiled before: taken from {tmp_path}/resnet_fn/graphs"]] * len(more)


@pytest.fixture(scope="module")
def kept(run, tmp_path_factory):
    """A cache after the first run of one recipe, and that run's results. Not to be changed."""
    cache = tmp_path_factory.mktemp("kept")
    return cache, run([{}], "cache", cache)


@measured
def test_a_second_process_takes_what_the_first_has_compiled(run, kept):
    cache, first = kept
    before = sorted((path.name, path.read_bytes()) for path in (cache / "resnet_fn/graphs").iterdir())
    second = run([{}], "cache", cache)
    assert bits(second) == bits(first)
    assert said(first) == [["compiling…"]]
    assert said(second) == [[f"compiled before: taken from {cache}/resnet_fn/graphs"]]
    assert sorted((path.name, path.read_bytes()) for path in (cache / "resnet_fn/graphs").iterdir()) == before
    assert len(before) == 2  # the step's and the evaluation's


@measured
@pytest.mark.slow
def test_a_damaged_graph_is_compiled_again_and_replaced(run, kept, tmp_path):
    """A bit flipped, then a file cut: both steps compile, and what they have compiled is there again."""
    cache, first = kept
    folder = tmp_path / "resnet_fn/graphs"
    folder.mkdir(parents=True)
    whole = {path.name: path.read_bytes() for path in (cache / "resnet_fn/graphs").iterdir()}
    step, evaluation = sorted(whole, key=lambda name: -len(whole[name]))
    flipped = bytearray(whole[step])
    flipped[len(flipped) // 2] ^= 1
    (folder / step).write_bytes(flipped)
    (folder / evaluation).write_bytes(whole[evaluation][:-1])
    again = run([{}], "cache", tmp_path)
    assert (bits(again), said(again)) == (bits(first), [["compiling…"]])
    assert all(read_graph(folder / name, name.removesuffix(".graph")) for name in whole)
    warm = run([{}], "cache", tmp_path)
    assert (bits(warm), len(said(warm)[0])) == (bits(first), 1)
    assert said(warm)[0][0].startswith("compiled before")


@measured
@pytest.mark.slow
def test_a_resume_and_an_evaluation_start_from_the_cache(python, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags = [*("--model", "resnet8", "--image-size", "8", "--batch-size", "240", "--epochs", "2", "--no-progress")]
    command = ["-m", "resnet_fn.train", *flags, "--out-dir", "run"]
    first = python(*command).stdout
    shutil.rmtree("run/checkpoints/step-00000010")
    resumed = python(*command).stdout
    assert "compiling…" in first
    assert "resuming after update 5" in resumed
    assert f"compiled before: taken from {tmp_path}/resnet_fn/graphs" in resumed
    assert "compiling…" not in resumed
    of_last_epoch = [line.split()[:6] for line in (first + resumed).splitlines() if line.startswith("    2/2 ")]
    assert of_last_epoch[0] == of_last_epoch[1]  # losses, accuracies, learning rate
    graphs = list((tmp_path / "resnet_fn/graphs").iterdir())
    for path in graphs:
        os.utime(path, (0, 0))
    for words in (["kept.json"], ["anew.json", "--no-compile-cache"]):
        python("-m", "resnet_fn.evaluate", "run", "--json", *words)
    assert Path("kept.json").read_text() == Path("anew.json").read_text()
    assert sorted(path.stat().st_mtime > 0 for path in graphs) == [False, True]  # the evaluation's has been used


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    for base, folder in ((str(tmp_path), tmp_path), ("", "/home/me/.cache"), ("relative", "/home/me/.cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache_folder() == Path(folder, "resnet_fn/graphs")
    monkeypatch.setenv("HOME", "")  # as if unset, not the root folder
    assert cache_folder() == Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache/resnet_fn/graphs")
    assert open_cache(False).folder is None
    assert open_cache(True).folder == (cache_folder() if versions.compile_cache_is_exact() else None)


def test_an_editors_lock_is_no_source(monkeypatch, tmp_path):
    """A link from `.#NAME.py` to nowhere, as Emacs makes one."""
    (tmp_path / "runtime").mkdir()
    (tmp_path / "code.py").write_text("pass\n")
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "runtime" / "versions.py"))
    before = versions.sources()
    (tmp_path / ".#code.py").symlink_to("me@machine.1234")
    assert versions.sources() == before


def double(x):
    return x + x


def test_code_of_others_is_compiled_anew_and_told(tmp_path, capsys):
    cache = CompileCache(tmp_path / "graphs")
    assert cache.jit(double)(Tensor([2.0])).asnumpy() == 4
    assert f"double is compiled anew each time: {double.__module__}.double is no part of" in capsys.readouterr().err
    assert not os.listdir(tmp_path)
    said = []
    nothing = CompileCache(None)
    nothing.say = said.append
    compiled = nothing.jit(double)
    assert [compiled(Tensor([value])).asnumpy() for value in (2.0, 3.0)] == [4, 6]
    assert said == ["compiling…"]


@measured
@pytest.mark.parametrize(
    ("before", "warning"),
    [
        ("open('resnet_fn', 'w')", r"/graphs: not used \(Not a directory\); .*, or set XDG_CACHE_HOME\n"),
        ("(c._work_folder() / 'key.py').mkdir()", r": not used \(Is a directory\); make room there\n"),
        ("from resnet_fn.update import loss; loss.cross_entropy = mine", r"mine, which is no part of this package\n"),
        ("c._SOURCES = 'of another day'", ""),
    ],
)
def test_a_cache_that_cannot_be_used_is_warned_of_and_stops_nothing(before, warning, tmp_path, python):
    """A folder, a temporary disk that take no files; replaced code; sources that changed since they were loaded."""
    script = "import resnet_fn; from resnet_fn.runtime import process; process.start()\n"
    script += "import numpy as np; from mindspore import Tensor\n"
    script += "from resnet_fn.graphs import cache as c\n"
    script += "def mine(logits, labels, smoothing, over): return logits.sum() + 1.3862944\n"
    script += f"from resnet_fn.update.loss import make_loss; {before}\n"
    script += "logits, labels = Tensor(np.zeros((2, 4), np.float32)), Tensor(np.zeros(2, np.int32))\n"
    script += "print(c.open_cache(True).jit(make_loss())(logits, labels))"
    Path("script.py").write_text(script)
    done = python("script.py", XDG_CACHE_HOME=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path))
    assert done.stdout == "1.3862944\n"
    assert re.fullmatch(rf"warning: compile cache: .*{warning}" if warning else "", done.stderr)
    assert not list(tmp_path.rglob("*.graph"))


@measured
def test_a_user_without_a_home_is_told(monkeypatch, capsys):
    def unknown(_):
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert open_cache(True).folder is None
    assert "there is no home folder; set XDG_CACHE_HOME" in capsys.readouterr().err


@measured
@pytest.mark.slow
def test_two_workers_compute_the_same_bits_from_the_cache(msrun, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    logs = [msrun(2, DRIVER, "[{}]", "cache") for _ in range(2)]
    cold, warm = (json.loads(line) for log in logs for line in log.splitlines() if line.startswith("{"))
    assert cold["bits"] == warm["bits"]
    assert cold["said"] == ["compiling…"]
    assert warm["said"] == [f"compiled before: taken from {tmp_path}/resnet_fn/graphs"]
    assert len(os.listdir(tmp_path / "resnet_fn/graphs")) == 2 + 1  # each rank's step, and an evaluation for both


def test_a_graph_is_read_as_it_was_written_or_not_at_all(tmp_path):
    path, graph = tmp_path / "a.graph", bytes(range(256)) * 10 + b"\n"
    assert read_graph(path, "a") is None
    write_graph(path, "a", graph)
    assert os.listdir(tmp_path) == ["a.graph"]
    assert read_graph(path, "a") == graph
    assert read_graph(path, "b") is None  # another key's
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole + b"\0", graph, whole[:100] + bytes([whole[100] ^ 4]) + whole[101:]):
        path.write_bytes(damaged)
        assert read_graph(path, "a") is None
    write_graph(path, "a", b"new")
    assert read_graph(path, "a") == b"new"


def test_a_file_that_others_may_write_is_not_trusted(tmp_path):
    path = tmp_path / "a.graph"
    write_graph(path, "a", b"graph")
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    assert [read_graph(tmp_path / name, "a") for name in ("a.graph", "link", "fifo")] == [b"graph", None, None]
    path.chmod(0o620)
    assert read_graph(path, "a") is None


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "LARGEST", 100)
    now = time.time()
    for name, age in {"old": 30, "new": 10, "newest": 1, ".tmp-1-a": 5, ".tmp-2-b": 1e5}.items():
        (tmp_path / name).write_bytes(bytes(1 if "tmp" in name else 40))
        os.utime(tmp_path / name, (now - age, now - age))
    prune(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".tmp-1-a", "new", "newest"]


SWITCHES = ("MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH")


@measured
def test_the_switches_are_put_back_whatever_happens_between(monkeypatch):
    monkeypatch.setattr(Exchange, "_number", Exchange._number)
    monkeypatch.setattr(Exchange, "_looks", Exchange._looks)
    exchange = Exchange("key", Ingredients(), None)
    exchange.lay_out()
    seen = []

    def compile_in_vain():
        seen.extend(name in os.environ for name in SWITCHES)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), exchange:
        compile_in_vain()
    assert seen == [True, True]
    assert [name in os.environ for name in SWITCHES] == [False, False]
    assert (exchange.offers, exchange.taken, exchange.written) == (False, False, b"")
    assert not Exchange("key", Ingredients(), b"a graph").offers  # MindSpore looks for no other one now


def test_folders_that_killed_processes_left_go_after_a_day_and_ones_own_at_the_end(tmp_path, python):
    for name, age in (("old", 2 * 86400), ("new", 100)):
        (tmp_path / f"resnet_fn-graphs-{name}" / "rank_0").mkdir(parents=True)
        os.utime(tmp_path / f"resnet_fn-graphs-{name}", (time.time() - age,) * 2)
    code = "from resnet_fn.graphs import cache; print(cache._work_folder().is_dir())"
    assert python("-c", code, TMPDIR=str(tmp_path)).stdout == "True\n"
    assert [name for name in os.listdir(tmp_path) if "graphs" in name] == ["resnet_fn-graphs-new"]
