"""Which run folder, and from where it goes on: by the flags, by what is there, and never by guessing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import CheckpointError, write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder, find_checkpoint, find_start
from resnet_fn.config.fields import to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.workers import Workers
from resnet_fn.train import parse

RECIPE = Recipe(batch_size=240)


@pytest.fixture
def lock():
    with FolderLock() as held:
        yield held


def checkpoint(folder, *updates, best=None, recipe=RECIPE, **more):
    """Write a checkpoint after each of the updates; returns the last one's folder."""
    for update in updates:
        arrays = {"w": np.full(3, update, np.float32)}
        state = {"update": update, "best": best, "last": None, "recipe": to_dict(recipe), **more}
        written = write_checkpoint(RunFolder(Path(folder)).step(update), arrays, arrays, state)
    return written


def start(lock, recipe=RECIPE, **options):
    return find_start(recipe, RunOptions(**options), Workers(), lock)


def test_a_new_folder_starts_at_update_0(lock):
    run, found = start(lock, out_dir="new")
    assert (run.path, found) == (Path("new"), None)
    assert not run.path.exists()  # nothing is made before everything is known to be right
    run.create(lock)
    assert run.checkpoints.is_dir()


def test_runs_that_start_in_one_second_get_folders_of_their_own():
    run = RunFolder(Path("runs/digits-20260102-030405"))
    names = [run.reserve(Workers(), is_new=True).path.name for _ in range(3)]
    assert names == ["digits-20260102-030405", "digits-20260102-030405-2", "digits-20260102-030405-3"]


@pytest.mark.parametrize("source", ["run", "run/checkpoints/step-00000005"])
def test_checkpoints_may_be_a_link_to_another_disk(source, lock):
    """The run folder is the one that was named, not the one beside which the checkpoints lie."""
    checkpoint("disk/here", 5)
    Path("run").mkdir()
    Path("run/checkpoints").symlink_to(Path("disk/here/checkpoints").absolute())
    run, found = start(lock, resume=source)
    assert (run.path.absolute(), found.state["update"]) == (Path("run").absolute(), 5)
    assert not Path("disk/here/lock").exists()


def test_what_a_killed_process_left_of_its_settings_goes(lock):
    run = RunFolder(Path("run"))
    run.create(lock)
    Path("run/.tmp-1-0123abcd-recipe.toml").write_text("half of")
    others = [".tmp-1-0123abcd-net.onnx", ".tmp-mine"]  # an export's that is being written, the user's
    for name in others:
        Path("run", name).touch()
    assert run.write_config(Recipe(), RunOptions(), Workers(), 'extends = "digits"\n') == []
    there = sorted(path.name for path in Path("run").iterdir())
    assert there == [*others, "checkpoints", "config.json", "lock", "recipe.toml"]


def test_a_recipe_file_that_was_changed_in_the_run_folder_stays(lock):
    run, path = RunFolder(Path("run")), Path("run/recipe.toml")
    run.create(lock)
    for text in ("seed = 1\n", "seed = 2\n"):
        assert run.write_config(Recipe(), RunOptions(), Workers(), text) == []
        assert path.read_text() == text
    path.write_text("# mine\nseed = 2\n")
    for _ in range(2):
        (note,) = run.write_config(Recipe(), RunOptions(), Workers(), "seed = 3\n")
        assert note == "run/recipe.toml has been changed since the run wrote it, and stays as it is"
        assert path.read_text() == "# mine\nseed = 2\n"


@pytest.mark.parametrize("name", ["config.json", "recipe.toml", "lock"])
def test_a_users_own_file_is_never_overwritten(name, lock):
    Path("mine").mkdir()
    Path("mine", name).write_text("{}")
    with pytest.raises(ValueError, match=rf"^out_dir: mine/{name} is no run's; give another --out-dir$"):
        start(lock, out_dir="mine")[0].create(lock)
    assert [(path.name, path.read_text()) for path in Path("mine").iterdir()] == [(name, "{}")]


def test_a_config_that_is_nested_without_end_counts_as_none(lock):
    checkpoint("run", 5)
    Path("run/config.json").write_text('{"recipe":' * 100_000)
    assert RunFolder(Path("run")).config() == {}
    assert parse(["--resume", "run"])[0] == RECIPE  # the checkpoint's


@pytest.mark.parametrize("left", ["", "\0" * 60], ids=["empty", "zeros"])
def test_a_lock_that_a_loss_of_power_left_without_text_is_a_runs_where_there_is_one(left, lock):
    with FolderLock() as first:
        RunFolder(Path("run")).create(first)
        RunFolder(Path("run")).write_config(RECIPE, RunOptions(), Workers(), "")
    for folder, config in (("run", Path("run/config.json").read_text()), ("mine", "{}")):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "config.json").write_text(config)
        Path(folder, "lock").write_text(left)
    with pytest.raises(ValueError, match=r"^out_dir: mine/config.json is no run's"):
        start(lock, out_dir="mine")
    run, saved = start(lock, out_dir="run")
    run.create(lock)
    assert saved is None
    assert Path("run/lock").read_text().startswith("process ")


def test_a_users_own_lock_is_not_taken_in_a_runs_folder_either(lock):
    RunFolder(Path("run")).checkpoints.mkdir(parents=True)
    RunFolder(Path("run")).write_config(RECIPE, RunOptions(), Workers(), "")
    Path("run/lock").write_text("mine")
    with pytest.raises(ValueError, match="is no run's; give another --out-dir"):
        start(lock, out_dir="run")
    assert Path("run/lock").read_text() == "mine"


def test_auto_goes_on_from_the_newest_also_after_a_crash_in_a_replacement(lock):
    checkpoint("run", 5, 10)
    assert start(lock, out_dir="run")[1].state["update"] == 10
    Path("run/checkpoints/step-00000010").rename("run/checkpoints/step-00000010.old")
    assert start(lock, out_dir="run")[1].state["update"] == 10
    with pytest.raises(
        ValueError, match=r"^out_dir: run already holds a run; give another --out-dir or --resume auto$"
    ):
        start(lock, out_dir="run", resume="never")


def test_another_recipe_is_refused_with_its_differences(lock):
    checkpoint("run", 5)
    other = dataclasses.replace(RECIPE, learning_rate=0.1, model="resnet8", name="other")
    with pytest.raises(ValueError) as caught:
        start(lock, other, out_dir="run")
    assert str(caught.value) == (
        "resume: run/checkpoints/step-00000005 was made by another recipe (model 'resnet20' → 'resnet8', "
        "learning_rate 0.2 → 0.1); to go on with its own give --resume run alone; for another run give another "
        "--out-dir, without --resume"
    )


def test_resume_alone_takes_the_runs_own_recipe_and_options(lock):
    made = ["--model", "resnet8", "--lr", "0.1", "--epochs", "3", "--accumulate", "2", "--out-dir", "run"]
    recipe, options, _ = parse(made)
    folder = checkpoint("run", 5, recipe=recipe)
    RunFolder(Path("run")).write_config(recipe, options, Workers(), "")
    for source in ("run", str(folder)):
        again, given, _ = parse(["--resume", source])
        assert (again, given) == (recipe, RunOptions(accumulate=2, resume=source))
        assert find_start(again, given, Workers(), lock)[1].state["update"] == 5
    recipe, options, _ = parse(["--resume", "run", "--epochs", "4"])
    with pytest.raises(ValueError, match=r"\(epochs 3 → 4\); to go on .* run alone; for more epochs") as caught:
        find_start(recipe, options, Workers(), lock)
    assert " give --recipe run/recipe.toml --weights run --epochs N and another --out-dir" in str(caught.value)
    folder.rename("copy")  # of which no run folder says how it was made
    assert parse(["--resume", "copy", "--out-dir", "y"])[0].epochs == 3


def test_a_named_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(lock, capsys):
    checkpoint("run", 5, 10)
    Path("run/checkpoints/step-00000010/state.json").write_text("")
    _, found = start(lock, resume="run")
    assert found.state["update"] == 5
    assert "step-00000010/state.json: damaged" in capsys.readouterr().err


def test_a_path_continues_there_unless_it_would_overwrite(lock):
    checkpoint("run", 5, 10)
    run, found = start(lock, resume="run")
    assert (run.path.resolve(), found.state["update"]) == (Path("run").resolve(), 10)
    with pytest.raises(ValueError, match=r"already goes on to update 10, past step-00000005; give another --out-dir"):
        start(lock, resume="run/checkpoints/step-00000005")
    run, found = start(FolderLock(), resume="run/checkpoints/step-00000005", out_dir="branch")
    assert (run.path, found.state["update"]) == (Path("branch"), 5)


def test_a_branch_goes_on_with_its_own_newest_and_another_run_is_refused(lock):
    """The same line again: --resume X --out-dir Y, X a run or one of its checkpoints."""
    x, first = checkpoint("x", 5), Path("x/checkpoints/step-00000005").resolve()
    checkpoint("y", 7, branched_from=str(first))
    checkpoint("x", 10)
    for source in ("x", str(x)):
        run, found = start(lock, resume=source, out_dir="y")
        assert (run.path, found.path) == (Path("y"), Path("y/checkpoints/step-00000007"))
    checkpoint("z", 3)
    for source, folder in (("x", "z"), ("x/checkpoints/step-00000010", "y"), ("y", "x")):
        with pytest.raises(ValueError) as caught:
            start(lock, resume=source, out_dir=folder)
        assert str(caught.value) == (
            f"out_dir: {folder} already holds a run, which did not begin with {source}; give another --out-dir, "
            "or leave out --resume to go on with that run"
        )


@pytest.mark.parametrize("source", [".", "..", "../.."])
def test_a_run_that_began_with_no_other_is_no_branch_of_the_working_directory(source, lock, monkeypatch):
    """Where that is the run to go on with, or lies below it."""
    checkpoint(".", 9)
    checkpoint("y", 7, branched_from="")
    Path("a/b").mkdir(parents=True)
    out = Path("y").absolute()
    monkeypatch.chdir({".": ".", "..": "a", "../..": "a/b"}[source])
    with pytest.raises(ValueError, match=r"already holds a run, which did not begin with \S+; give another --out-dir"):
        start(lock, resume=source, out_dir=str(out))


def test_a_best_checkpoint_that_has_gone_is_the_best_no_more(lock, capsys):
    checkpoint("x", 10, best={"top1": 0.9, "update": 5})
    _, found = start(lock, resume="x", out_dir="y")
    assert found.state["best"] is None
    assert capsys.readouterr().err == "warning: the best checkpoint, after update 5, has gone\n"


def test_all_damaged_is_refused(lock):
    (checkpoint("run", 5) / "state.json").write_text("")
    with pytest.raises(CheckpointError, match="none of its 1 checkpoints is intact; start a new run"):
        start(lock, out_dir="run")


def test_best_is_the_one_that_the_newest_names():
    checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    assert find_checkpoint(Path("run"), "best").state["update"] == 5
    assert find_checkpoint(Path("run"), "last").state["update"] == 10
    checkpoint("run", 5).rename("mine")  # a checkpoint folder may have any name
    assert find_checkpoint(Path("mine")).state["update"] == 5


def test_the_folder_of_a_runs_checkpoints_is_that_run(lock, monkeypatch):
    checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    RunFolder(Path("run")).write_config(RECIPE, RunOptions(log_every=7), Workers(), "")
    assert find_checkpoint(Path("run/checkpoints"), "best").state["update"] == 5
    _, options, _ = parse(["--resume", "run/checkpoints/"])
    assert options.log_every == 7
    run, found = find_start(RECIPE, options, Workers(), lock)
    assert (run.path, found.state["update"]) == (Path("run"), 10)
    monkeypatch.chdir("run/checkpoints")
    assert find_checkpoint(Path(".")).state["update"] == 10


def test_a_path_that_is_not_there_names_what_is():
    checkpoint("runs/digits-1", 5)
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(Path("runs/digits-2"))
    assert str(caught.value).startswith("runs/digits-2: does not exist; did you mean runs/digits-1?")
    with pytest.raises(CheckpointError, match=r"^runs: is a folder of runs; give one of them: runs/digits-1$"):
        find_checkpoint(Path("runs"))
    Path("empty").mkdir()
    with pytest.raises(CheckpointError, match="empty: holds no checkpoint; give a run folder or a checkpoint folder"):
        find_checkpoint(Path("empty"))


def test_pruning_keeps_the_newest_the_best_and_every_nth():
    run = RunFolder(Path("run"))
    checkpoint("run", *range(1, 11))
    (run.checkpoints / "step-00000011.tmp-1").mkdir()
    (run.checkpoints / "step-00000011.tmp-mine").mkdir()  # not a run's
    run.prune(10, keep_last=2, keep_every=4, keep={3})
    assert run.updates() == [3, 4, 8, 9, 10]
    names = [f"step-{u:08d}" for u in (3, 4, 8, 9, 10)] + ["step-00000011.tmp-mine"]
    assert sorted(path.name for path in run.checkpoints.iterdir()) == names


def test_pruning_never_removes_what_was_just_written():
    """Damaged later ones, which a resumed run is about to make again, do not count among the newest."""
    run = RunFolder(Path("run"))
    checkpoint("run", 1, 2, 3, 7, 8, 9)
    run.prune(3, keep_last=2)
    assert run.updates() == [2, 3, 7, 8, 9]


def test_a_checkpoint_that_lies_in_no_run_folder_needs_one(lock):
    checkpoint("run", 5).rename("copy")
    with pytest.raises(ValueError, match=r"^out_dir: copy lies in no run folder; give one with --out-dir$"):
        start(lock, resume="copy")
    run, found = start(lock, resume="copy", out_dir="branch")
    assert (run.path, found.state["update"]) == (Path("branch"), 5)
