"""A run folder: which checkpoint is the newest and the best, pruning, config.json."""

import json
from functools import partial
from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import CheckpointError
from resnet_fn.checkpoint.run_folder import RunFolder, find_checkpoint
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.runtime.workers import Workers
from resnet_fn.train import parse

RECIPE = Recipe(batch_size=240)
RUN = RunFolder(Path("run"))


def update_of(path="run", which="last"):
    return find_checkpoint(Path(path), which).state["update"]


def test_runs_of_one_second_get_separate_folders():
    run = RunFolder(Path("runs/digits-20260102-030405"))
    endings = [str(run.reserve(Workers(), is_new=True).path)[27:] for _ in range(3)]
    assert endings == ["", "-2", "-3"]


def test_unfinished_settings_of_a_killed_process_are_removed(lock):
    RUN.create(lock)
    Path("run/.tmp-1-0123abcd-recipe.toml").write_text("half of")
    # an export's that is being written, the user's
    others = [".tmp-1-0123abcd-net.onnx", ".tmp-mine"]
    for name in others:
        Path("run", name).touch()
    assert RUN.write_config(Recipe(), RunOptions(), Workers(), 'extends = "digits"\n') == []
    there = sorted(path.name for path in Path("run").iterdir())
    assert there == [*others, "checkpoints", "config.json", "lock", "recipe.toml"]


def test_a_changed_recipe_file_of_a_run_stays(lock):
    path = Path("run/recipe.toml")
    RUN.create(lock)
    for text in ("seed = 1\n", "seed = 2\n"):
        assert RUN.write_config(Recipe(), RunOptions(), Workers(), text) == []
        assert path.read_text() == text
    path.write_text("# mine\nseed = 2\n")
    for _ in range(2):
        (note,) = RUN.write_config(Recipe(), RunOptions(), Workers(), "seed = 3\n")
        assert note == "run/recipe.toml has been changed since the run wrote it, and stays as it is"
        assert path.read_text() == "# mine\nseed = 2\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"recipe":' * 100_000, "nested too deeply"),
        ('{"recipe": {', "Expecting property name"),
        ('{"recipe": {}}', "not a run's settings"),
    ],
)
def test_a_damaged_config_ends_a_resume_by_name(checkpoint, text, fault, raises_line):
    """The run's own options are in no other file."""
    checkpoint("run", 5)
    Path("run/config.json").write_text(text)
    fix = "); restore it, or delete it to go on with default options"
    with raises_line(f"run/config.json: cannot be read ({fault}", fix):
        parse(["--resume", "run"])


def test_a_newer_versions_run_is_named(checkpoint, raises_line):
    checkpoint("run", 5)
    settings = {"recipe": to_dict(RECIPE), "options": {"newer_setting": 1}}
    Path("run/config.json").write_text(json.dumps(settings))
    with raises_line("resume: run: ", "'newer_setting'", "the version of resnet_fn that wrote it"):
        parse(["--resume", "run"])


def test_without_a_config_options_are_the_defaults(checkpoint):
    checkpoint("run", 5)
    recipe, options, notes = parse(["--resume", "run", "--log-every", "7"])
    assert recipe == RECIPE  # the checkpoint's
    assert (options.log_every, options.keep_last) == (7, RunOptions().keep_last)
    (note,) = notes
    assert note == "the run has no config.json; options not given here have default values"


@pytest.mark.parametrize("config", ["", "{"])
def test_a_recipe_file_without_a_known_hash_stays(config, checkpoint, lock):
    checkpoint("run", 5)
    if config:
        Path("run/config.json").write_text(config)
    Path("run/recipe.toml").write_text("# mine\n")
    RUN.create(lock)
    write = partial(RUN.write_config, Recipe(), RunOptions(), Workers())
    for _ in range(2):
        (note,) = write("seed = 3\n")
        assert "recipe.toml may have been changed (delete it to have it written" in note
        assert Path("run/recipe.toml").read_text() == "# mine\n"
    assert not write("# mine\n")  # as it would be written
    assert not write("seed = 3\n")


def test_best_is_the_one_that_the_newest_names(checkpoint):
    checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    assert update_of(which="best") == 5
    assert update_of() == 10
    checkpoint("run", 5).rename("mine")  # a checkpoint folder may have any name
    assert update_of("mine") == 5


def test_one_checkpoint_is_not_chosen_as_the_best(checkpoint, raises_line):
    path = checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    fault = f"which: 'best' is for run folders, but {path} is a checkpoint"
    with raises_line(fault, "; give the run's"):
        update_of(path, "best")


def damage(update, file="weights.safetensors"):
    path = RUN.checkpoint_path(update) / file
    path.write_bytes(bytes(path.stat().st_size))


def test_the_best_needs_no_arrays_of_others(checkpoint, capsys):
    checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    damage(10)
    assert update_of(which="best") == 5
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["weights.safetensors", "state.json"])
def test_a_damaged_best_gives_way_to_the_earlier(file, checkpoint, capsys):
    """If it is the newest. An earlier one that is damaged is an error."""
    checkpoint("run", 5, best={"top1": 0.8, "update": 5})
    checkpoint("run", 10, best={"top1": 0.9, "update": 10})
    damage(10, file)
    assert update_of(which="best") == 5
    assert f"{file} is damaged" in capsys.readouterr().err
    checkpoint("run", 15, best={"top1": 0.8, "update": 5})
    damage(5, file)
    with pytest.raises(CheckpointError, match=f"step-00000005/{file} is damaged"):
        update_of(which="best")


def test_a_runs_checkpoints_folder_stands_for_the_run(checkpoint, monkeypatch):
    checkpoint("run", 5, 10, best={"top1": 0.9, "update": 5})
    RUN.write_config(RECIPE, RunOptions(log_every=7), Workers(), "")
    assert update_of("run/checkpoints", "best") == 5
    assert parse(["--resume", "run/checkpoints/"])[1].log_every == 7
    monkeypatch.chdir("run/checkpoints")
    assert update_of(".") == 10


def test_a_missing_path_names_runs_that_exist(checkpoint):
    checkpoint("runs/digits-1", 5)
    Path("runs/digits-1/metrics.jsonl").touch()
    for path, message in (
        ("runs/digits-2", r"^runs/digits-2 does not exist; did you mean runs/digits-1\?"),
        ("runs", "^runs contains no checkpoint; give one of the runs in runs: runs/digits-1$"),
        ("runs/mnist", "^runs/mnist does not exist; give one of the runs in runs: runs/digits-1$"),
        ("empty", "^empty contains no checkpoint; give a run folder or a checkpoint folder"),
    ):
        Path("empty").mkdir(exist_ok=True)
        with pytest.raises(CheckpointError, match=message):
            update_of(path)


def test_pruning_keeps_newest_best_and_every_nth(checkpoint):
    checkpoint("run", *range(1, 11))
    (RUN.checkpoints / "step-00000011.tmp-1").mkdir()
    (RUN.checkpoints / "step-00000011.tmp-mine").mkdir()  # not a run's
    RUN.prune(10, keep_last=2, keep_every=4, best=3)
    assert RUN.updates() == [3, 4, 8, 9, 10]
    (other,) = RUN.checkpoints.glob("*.*")
    assert other.name == "step-00000011.tmp-mine"


def test_pruning_never_removes_what_was_just_written(checkpoint):
    """Damaged later ones, which a resumed run is about to make again, do not count among the
    newest.
    """
    checkpoint("run", 1, 2, 3, 7, 8, 9)
    RUN.prune(3, keep_last=2)
    assert RUN.updates() == [2, 3, 7, 8, 9]


def test_the_best_is_reread_after_a_replacement(checkpoint, at_open, capsys):
    checkpoint("run", 1, 2, best={"top1": 0.5, "update": 1})

    def go_on() -> None:
        checkpoint("run", 3, 4, best={"top1": 0.6, "update": 3})
        RUN.prune(4, keep_last=2, best=3)

    at_open("step-00000001/weights", go_on)
    assert RUN.best().state["update"] == 3
    assert capsys.readouterr().err == ""


def test_the_newest_is_reread_after_a_replacement(checkpoint, at_open, capsys):
    checkpoint("run", 1, 2)
    at_open("step-00000002/state", lambda: checkpoint("run", 2, best={"top1": 0.7, "update": 2}))
    assert RUN.newest().state["best"] == {"top1": 0.7, "update": 2}
    assert capsys.readouterr().err == ""


def test_a_damaged_checkpoint_without_manifest_is_kept_aside(checkpoint, capsys):
    checkpoint("run", 1, 2, 3)
    (RUN.checkpoint_path(1) / "manifest.json").unlink()
    (RUN.checkpoint_path(3) / "manifest.json").write_text("half of")
    RUN.set_aside(after=2)
    assert RUN.updates() == [1, 2]
    (aside,) = RUN.checkpoints.glob("step-00000003.damaged-*")
    assert len(list(aside.iterdir())) == 4
    assert f"has no intact manifest.json, and is now {aside}" in capsys.readouterr().err
    checkpoint("run", 3)
    RUN.prune(3, keep_last=3)
    assert aside.exists()


def test_another_users_old_checkpoint_is_not_read(checkpoint, another_user):
    checkpoint("run", 5, 10)
    Path().chmod(0o755)
    closed = Path("run/checkpoints/step-00000005")
    closed.chmod(0)
    with another_user():
        assert RUN.newest().state["update"] == 10
    closed.chmod(0o755)
