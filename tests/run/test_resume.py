"""A stopped and resumed run equals an unbroken one, or is rejected with a fix."""

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder, settings_of
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.stored import recipe_from_dict
from resnet_fn.config.values import to_dict
from resnet_fn.recipes import load_recipe
from resnet_fn.run.build import Progress
from resnet_fn.run.loop import train
from resnet_fn.run.resume import (
    find_start,
    layout_notes,
    parallel_layout,
    resumed_recipe,
    save_is_due,
)
from resnet_fn.runtime import process
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.workers import Workers
from resnet_fn.train import parse

pytestmark = pytest.mark.usefixtures("device")

RECIPE = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=3)
FEW = Recipe(  # two updates an epoch
    model="resnet8", image_size=8, dataset="synthetic", synthetic_samples=32, batch_size=16
)


@pytest.fixture
def start(lock):
    """start(recipe, **options) finds where a run starts: its folder, and a checkpoint or None."""
    return lambda recipe=RECIPE, **options: find_start(
        recipe, RunOptions(**options), Workers(), lock
    )


@pytest.fixture
def rejected(start):
    """rejected(recipe, **options): the error's text where `start` finds none."""

    def text(recipe=RECIPE, **options):
        with pytest.raises(ValueError) as caught:
            start(recipe, **options)
        return str(caught.value)

    return text


def write_config(recipe=RECIPE, **options):
    RunFolder(Path("run")).write_config(recipe, RunOptions(**options), Workers(), "")


def layout(workers=1, **options):
    return parallel_layout(RunOptions(**options), Workers(0, workers))


def test_a_run_is_on_disk_only_after_create(start, lock):
    run, found = start(out_dir="new")
    assert (run.path, found) == (Path("new"), None)
    assert not run.path.exists()  # nothing is made before everything is known to be right
    run.create(lock)
    assert run.checkpoints.is_dir()


@pytest.mark.parametrize("source", ["run", "run/checkpoints/step-00000005"])
def test_checkpoints_may_be_a_link_to_another_disk(checkpoint, source, start):
    """The run folder is the one that was named, not the one beside which the checkpoints lie."""
    checkpoint("disk/here", 5)
    Path("run").mkdir()
    Path("run/checkpoints").symlink_to(Path("disk/here/checkpoints").absolute())
    run, found = start(resume=source)
    assert (run.path.absolute(), found.state["update"]) == (Path("run").absolute(), 5)
    assert not Path("disk/here/lock").exists()


def test_a_run_that_began_and_ended_meanwhile_stays(checkpoint, start, lock):
    run, _ = start(out_dir="new")
    checkpoint("new", 5)
    with pytest.raises(ValueError, match=r"^out_dir: new already holds a run; give another --out"):
        run.create(lock, is_new=True)
    assert run.updates() == [5]


OWN_FILES = "config.json recipe.toml lock validation.json contents.json bad_files.txt metrics.jsonl"


@pytest.mark.parametrize("name", OWN_FILES.split())
def test_a_users_own_file_is_never_overwritten(name, start, lock):
    Path("mine").mkdir()
    Path("mine", name).write_text("{}")
    with pytest.raises(
        ValueError,
        match=rf"^out_dir: mine/{name} was not written by a run; give another --out-dir$",
    ):
        start(out_dir="mine")[0].create(lock)
    assert Path("mine", name).read_text() == "{}"


@pytest.mark.parametrize("left", ["", "\0" * 60], ids=["empty", "zeros"])
def test_an_empty_lock_beside_a_run_is_taken(left, start, rejected, lock):
    with FolderLock() as first:
        RunFolder(Path("run")).create(first)
        write_config()
    for folder, config in (("run", Path("run/config.json").read_text()), ("mine", "{}")):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "config.json").write_text(config)
        Path(folder, "lock").write_text(left)
    assert rejected(out_dir="mine").startswith("out_dir: mine/config.json was not written by a run")
    run, saved = start(out_dir="run")
    run.create(lock)
    assert saved is None
    assert Path("run/lock").read_text().startswith("process ")


def test_auto_resumes_after_a_crash_in_a_replacement(checkpoint, start, rejected):
    checkpoint("run", 5, 10)
    assert start(out_dir="run")[1].state["update"] == 10
    Path("run/checkpoints/step-00000010").rename(
        "run/checkpoints/step-00000010.replaced-77-0123abcd"
    )
    assert start(out_dir="run")[1].state["update"] == 10
    text = rejected(out_dir="run", resume="never")
    assert text == "out_dir: run already holds a run; give another --out-dir or --resume auto"


@pytest.mark.parametrize("option", ["auto", "never", "run"])
@pytest.mark.parametrize("disk", ["not mounted", "gone"])
def test_logged_but_missing_checkpoints_forbid_a_new_run(option, disk, rejected, lock, says):
    """`checkpoints` is a link to a disk, whose mount point is empty or missing."""
    log = "".join(
        json.dumps({"event": event, "update": update}) + "\n"
        for event, update in (("train", 1), ("checkpoint", 2), ("train", 3))
    )
    RunFolder(Path("run")).create(lock)
    write_config()
    Path("run/metrics.jsonl").write_text(log)
    Path("run/checkpoints").rmdir()
    Path("run/checkpoints").symlink_to(Path("disk").absolute())
    options = {"resume": option} if option == "run" else {"resume": option, "out_dir": "run"}
    if disk == "gone":
        says(rejected(**options), "run/checkpoints is a link to", "/disk", "; mount its disk")
    else:
        Path("disk").mkdir()
        parts = "run/checkpoints contains no", "run/metrics.jsonl reports one after update 2"
        says(rejected(**options), *parts, "; mount their disk", "another --out-dir")
    assert Path("run/metrics.jsonl").read_text() == log


def test_a_run_without_any_checkpoint_starts_anew(start, lock):
    RunFolder(Path("run")).create(lock)
    Path("run/metrics.jsonl").write_text('{"event": "train", "update": 1}\n')
    assert start(out_dir="run")[1] is None


def test_without_out_dir_no_old_run_is_resumed(checkpoint, start, monkeypatch):
    """A clock that was set back can come to the name of an old run."""
    monkeypatch.setattr("resnet_fn.run.resume.time.strftime", lambda _: "20261129-010203")
    checkpoint(f"runs/{RECIPE.name}-20261129-010203", 5)
    run, found = start()
    assert found is None
    new = run.reserve(Workers(), is_new=True)
    assert new.path.name == f"{run.path.name}-2"
    assert run.updates() == [5]


def test_a_run_replaces_its_own_damaged_checkpoint(checkpoint, start):
    checkpoint("run", 5, 10)
    Path("run/checkpoints/step-00000010/manifest.json").unlink()
    run, found = start(out_dir="run")
    assert found.state["update"] == 5
    run.set_aside(after=5)
    checkpoint("run", 10)
    assert run.newest().state["update"] == 10


def test_damaged_checkpoints_are_skipped_with_a_warning(checkpoint, start, rejected, capsys):
    """Not in place of one that was named; and never a new start."""
    checkpoint("run", 2, 5, 10)
    Path("run/checkpoints/step-00000010/state.json").write_text("{}")
    with open("run/checkpoints/step-00000005/weights.safetensors", "r+b") as file:
        file.truncate(100)
    for words in ({"resume": "run"}, {"out_dir": "run"}):
        assert start(**words)[1].state["update"] == 2
        for warning, part in zip(
            capsys.readouterr().err.splitlines(), ("10/state.json", "05/weights"), strict=True
        ):
            pattern = (
                rf"^warning: run/checkpoints/step-000000{part}.* is damaged .*; trying the "
                r"checkpoint before it$"
            )
            assert re.search(pattern, warning)
    assert "step-00000010/state.json is damaged" in rejected(resume="run/checkpoints/step-00000010")
    Path("run/checkpoints/step-00000002/manifest.json").unlink()
    assert "run: all 3 checkpoints are damaged; start a new run" in rejected(out_dir="run")


def test_a_missing_best_checkpoint_is_forgotten(checkpoint, start, capsys):
    checkpoint("x", 10, best={"top1": 0.9, "update": 5})
    assert start(resume="x")[1].state["best"] is None
    assert capsys.readouterr().err == "warning: the best checkpoint, after update 5, is missing\n"


def test_another_recipe_is_rejected_with_its_differences(checkpoint, rejected, says):
    checkpoint("run", 5)
    other = RECIPE.changed(learning_rate=0.1, model="resnet20", name="other")
    changes = "(model 'resnet8' → 'resnet20', learning_rate 0.2 → 0.1)"
    says(rejected(other, out_dir="run"), changes, "--resume run alone", "another --out-dir")


def test_resume_alone_takes_the_runs_own_settings(checkpoint, lock):
    made = shlex.split("--model resnet8 --lr 0.1 --epochs 3 --accumulate 2 --out-dir run")
    recipe, _, _ = parse(made)
    folder = checkpoint("run", 5, recipe=recipe)
    write_config(recipe, accumulate=2, out_dir="run")
    for source in ("run", str(folder)):
        again, given, _ = parse(["--resume", source])
        assert (again, given) == (recipe, RunOptions(accumulate=2, resume=source))
        assert find_start(again, given, Workers(), lock)[1].state["update"] == 5


def test_only_a_named_run_may_change_its_epochs(checkpoint, start, rejected, says):
    checkpoint("run", 5)
    longer = RECIPE.changed(epochs=4)
    assert start(longer, resume="run")[1].state["update"] == 5
    says(
        rejected(longer, out_dir="run"),
        "(epochs 3 → 4)",
        "give --resume run --epochs 4, without --out-dir",
    )


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_more_epochs_continue_like_an_unbroken_run(schedule, capsys, events, last_state):
    """The learning rate is then the longer schedule's; a constant one gives the longer run's
    bits.
    """
    # pynative: nothing to compile three times for two updates an epoch
    words = shlex.split(
        "--model resnet8 --image-size 8 --batch-size 480 --no-progress --mode pynative "
        f"--schedule {schedule}"
    )
    train(*parse([*words, "--epochs", "1", "--out-dir", "short"]))
    train(*parse([*words, "--epochs", "2", "--out-dir", "long"]))
    capsys.readouterr()
    train(*parse(["--resume", "short", "--epochs", "2"]))
    printed = " ".join(capsys.readouterr().out.split())
    short, long = ([event["lr"] for event in events(name, "train")] for name in ("short", "long"))
    assert len(short) == 4
    assert short[2:] == long[2:]
    assert "resuming with epochs 2 instead of 1" in printed
    assert f"the learning rate is {long[2]:.3g}" in printed
    state, arrays = last_state("short")
    assert (arrays == last_state("long")[1]) == (schedule == "constant")
    assert state["recipe"]["epochs"] == 2
    assert settings_of("short")["recipe"]["epochs"] == 2
    with pytest.raises(ValueError, match="epochs: 1 is less than the 2 epochs that the run has"):
        train(*parse(["--resume", "short", "--epochs", "1"]))


SMALL = shlex.split(
    "--model resnet8 --image-size 8 --batch-size 16 --epochs 2 "
    "--dataset synthetic --synthetic-samples 64 --max-shift 0 --max-rotation 0 "
    "--max-zoom 0"
)


@pytest.mark.parametrize(
    ("name", "now", "kept"),
    [
        ("rates", "--lr 0.03 --layer-decay 0.7 --head-lr-factor 3.3333333333333335", ""),
        (
            "average",
            "--ema 0.99 --ema-start 0.2 --no-ema-warmup",
            "ema_warmup stays False, not True",
        ),
    ],
)
def test_runs_of_earlier_commits_continue_bit_identically(
    name, now, kept, capsys, cut_after, last_state
):
    """`stored` has the state.json that a commit before 0.2.0 wrote after update 2 of the same
    training.
    """
    options = RunOptions(
        out_dir="run", mode="pynative", checkpoint_every=2, keep_last=9, progress=False
    )
    train(parse([*SMALL, *now.split()])[0], options)
    state, arrays = last_state("run")
    cut_after("run", 2)
    second = RunFolder(Path("run")).newest()
    stored = json.loads((Path(__file__).parent / "stored" / f"{name}-0.2.0.json").read_text())
    assert {"ema_warmup", "head_lr_factor", "eval_every"}.isdisjoint(stored["recipe"])
    write_checkpoint(second.path, second.weights, second.training, stored)
    capsys.readouterr()
    # The command of the first start goes on, though its defaults are others now.
    train(parse([*SMALL, *now.replace("--no-ema-warmup", "").split()])[0], options)
    printed = " ".join(capsys.readouterr().out.split())
    assert "resuming after update 2 " in printed
    assert kept in printed
    again = last_state("run")
    assert (again[0]["recipe"], again[1]) == (state["recipe"], arrays)


def test_an_old_run_of_a_recipe_file_resumes(write_recipe, start, rejected):
    """The file gets `head_lr_factor` from finetune, and the run began before that setting."""
    file = write_recipe({"extends": "finetune", "epochs": 3})
    recipe = Recipe.from_draft(load_recipe(file).complete())
    assert recipe.head_lr_factor == 10.0
    stored = {"update": 5, "best": None, "last": None, "recipe": to_dict(recipe)}
    del stored["recipe"]["head_lr_factor"]
    arrays = {"w": np.zeros(3, np.float32)}
    found = write_checkpoint(RunFolder(Path("run")).checkpoint_path(5), arrays, arrays, stored)
    assert start(recipe, out_dir="run", resume="auto")[1].path == found
    _, notes = resumed_recipe(recipe, load_checkpoint(found))
    assert any("head_lr_factor stays 1.0, not 10.0" in note for note in notes)
    other = Recipe.from_draft(load_recipe(file).complete({"head_lr_factor": 5.0}))
    assert "(head_lr_factor 1.0 → 5.0)" in rejected(other, out_dir="run")


def test_a_resumed_run_keeps_its_weights_norm(start):
    """The weights have no norms, so that the run began without the file's `sync_batchnorm`."""
    values = {"model": "", "weights": "w.ckpt", "sync_batchnorm": True}
    began = Recipe.unchecked(
        {**values, "model": "resnet8", "norm": "none", "sync_batchnorm": False}
    )
    stored = {"update": 5, "best": None, "last": None, "recipe": to_dict(began)}
    arrays = {"w": np.zeros(3, np.float32)}
    found = write_checkpoint(RunFolder(Path("run")).checkpoint_path(5), arrays, arrays, stored)
    again = Recipe.unchecked(values)
    assert start(again, out_dir="run", resume="auto")[1].path == found


def test_zero_equals_the_beta2_that_older_runs_stored(start, rejected):
    """Older versions stored each optimizer's own beta2, for which the default now has 0."""
    for optimizer, beta2 in (("adamw", 0.999), ("lion", 0.99), ("sgd", 0.999)):
        recipe = Recipe(optimizer=optimizer)
        stored = {"update": 5, "best": None, "last": None}
        stored["recipe"] = {**to_dict(recipe), "beta2": beta2}
        arrays = {"w": np.zeros(3, np.float32)}
        path = RunFolder(Path(optimizer)).checkpoint_path(5)
        written = write_checkpoint(path, arrays, arrays, stored)
        assert start(recipe, out_dir=optimizer, resume="auto")[1].path == written
        assert recipe_from_dict(stored["recipe"]) == recipe
    for recipe, changes in (
        (Recipe(optimizer="lion", beta2=0.95), "(beta2 0.99 → 0.95)"),
        (Recipe(optimizer="adam"), "(optimizer 'lion' → 'adam')"),
    ):
        assert changes in rejected(recipe, out_dir="lion")
    typed = Recipe(optimizer="lion", beta2=0.99)
    assert start(typed, out_dir="lion", resume="auto")[1].state["update"] == 5


@pytest.mark.parametrize(
    ("lines", "words", "note"),
    [
        ('on_bad_sample = "skip"', ["--dataset", "mindrecord"], "on_bad_sample stays error"),
        ("zero_init_residual = true", ["--weights", "w"], "zero_init_residual stays False"),
    ],
)
def test_a_command_with_left_out_settings_resumes(lines, words, note, checkpoint, lock):
    Path("my.toml").write_text(f"{lines}\nepochs = 3\n")
    command = ["--recipe", "my.toml", *words, "--out-dir", "run"]
    recipe, _, left_out = parse(command)
    assert left_out
    found = checkpoint("run", 5, recipe=recipe)
    again, options, _ = parse(command)
    assert find_start(again, options, Workers(), lock)[1].path == found
    went_on, notes = resumed_recipe(again, load_checkpoint(found))
    assert to_dict(went_on) == to_dict(recipe)
    assert note in "".join(notes)


def test_python_finds_an_older_recipe_files_run(checkpoint):
    """Its settings have no effect by newer rules. The fixture's checkpoint is found, and cannot
    go on.
    """
    text = 'dataset = "mindrecord"\ncheck_files = "yes"\nepochs = 3\n'
    Path("my.toml").write_text(text)
    recipe = Recipe(dataset="mindrecord", epochs=3, name="my")
    checkpoint("run", 5, recipe=recipe)
    with pytest.raises(ValueError, match=r"state.json has no 'dataset'"):
        train("my.toml", RunOptions(out_dir="run"))


def typed(text):
    """Type the commands of an error's text; returns the folder that is to be resumed."""
    commands, folder = re.search(
        r": ((?:cp|mkdir) .*); then --resume ('[^']+'|[^ ,]+)", text
    ).groups()
    subprocess.run(["sh", "-c", commands], check=True)
    return folder.strip("'")


@pytest.mark.parametrize(
    ("options", "field", "copy"),
    [
        ({"resume": "run", "out_dir": "my branch"}, "out_dir: my branch", 10),
        ({"resume": "run/checkpoints/step-00000005", "out_dir": "branch"}, "out_dir: branch", 5),
        (
            {"resume": "run/checkpoints/step-00000005"},
            "resume: run has checkpoints after .*5, up to update 10",
            5,
        ),
    ],
)
def test_the_error_prints_commands_that_branch_a_run(
    checkpoint, options, field, copy, rejected, lock
):
    checkpoint("run", 2, 5, 10)
    write_config(log_every=7)
    text = rejected(**options)
    assert re.match(field, text), text
    branch = typed(text)
    recipe, given, _ = parse(["--resume", branch])
    assert (recipe, given.log_every) == (RECIPE, 7)
    run, found = find_start(recipe, given, Workers(), lock)
    assert (run.path, found.state["update"]) == (Path(branch), copy)
    source = RunFolder(Path("run")).checkpoint_path(copy)
    assert all(
        file.read_bytes() == (found.path / file.name).read_bytes() for file in source.iterdir()
    )
    assert RunFolder(Path("run")).updates() == [2, 5, 10]
    assert "already holds a run; leave out --resume" in rejected(resume="run", out_dir=branch)


def test_a_checkpoint_outside_a_run_has_copy_commands(checkpoint, rejected, lock):
    checkpoint("run", 5).rename("copy")
    assert parse(["--resume", "copy"])[0].epochs == 3
    text = rejected(resume="copy")
    assert text.startswith("resume: copy does not lie in a run folder; put it into one: ")
    assert " y/checkpoints/step-00000005; then --resume y" in rejected(resume="copy", out_dir="y")
    assert typed(text) == "NEW"
    run, found = find_start(*parse(["--resume", "NEW"])[:2], Workers(), lock)
    assert (run.path, found.state["update"]) == (Path("NEW"), 5)


def epochs_shown(printed):
    """The first words of the table's rows, and whether each row shows an evaluation."""
    rows = [line.split() for line in printed.splitlines() if re.match(r" +\d+/\d+ ", line)]
    return {row[0]: row[3] != "-" for row in rows}


def test_epochs_without_evaluation_are_saved_shown_and_resumed(
    capsys, cut_after, last_state, events
):
    """--eval-every 2 of 5 epochs: epochs 2, 4 and the last are evaluated."""
    recipe = FEW.changed(epochs=5, eval_every=2)
    options = RunOptions(out_dir="run", mode="pynative", keep_last=9, progress=False)
    result = train(recipe, options)
    assert epochs_shown(capsys.readouterr().out) == {
        "1/5": False,
        "2/5": True,
        "3/5": False,
        "4/5": True,
        "5/5": True,
    }
    assert [event["update"] for event in events("run", "eval")] == [4, 8, 10]
    run = RunFolder(Path("run"))
    ended = last_state("run")
    assert run.updates() == [2, 4, 6, 8, 10]
    cut_after("run", 6)  # stopped after an epoch without evaluation
    assert load_checkpoint(run.checkpoint_path(6)).state["last"]["update"] == 4
    again = train(recipe, options)
    assert last_state("run") == ended
    assert (again, again.history["eval"]) == (result, events("run", "eval"))
    assert epochs_shown(capsys.readouterr().out) == {"4/5": True, "5/5": True}
    with pytest.raises(ValueError, match="eval_every 2 → 1"):
        train(recipe.changed(eval_every=1), options)


def test_a_stop_after_an_epoch_shows_its_row(capsys):
    """Each epoch is one update, so that a signal always comes in an epoch's last one."""
    recipe = FEW.changed(batch_size=32, epochs=1000, eval_every=1000)

    def stop_after_the_first() -> None:
        while not Path("run/checkpoints/step-00000001").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop_after_the_first)
    thread.start()
    result = train(recipe, RunOptions(out_dir="run", mode="pynative", progress=False))
    thread.join()
    assert result.stopped == signal.SIGTERM
    assert len(epochs_shown(capsys.readouterr().out)) == result.updates


def test_patience_counts_evaluations_across_a_resume(capsys, cut_after, last_state):
    """At a rate of almost nothing, the first evaluation is never improved on: the third ends the
    run.
    """
    flat = {"learning_rate": 1e-12, "freeze": "stem,layer?", "monitor": "loss"}
    recipe = FEW.changed(epochs=9, eval_every=2, patience=2, sampling="balanced", **flat)
    options = RunOptions(out_dir="run", mode="pynative", keep_last=9, progress=False)
    result = train(recipe, options)
    assert result.updates == 2 * 6
    assert "early stop: loss has not improved for 2 evaluations" in capsys.readouterr().out
    state, arrays = last_state("run")
    assert state["without_gain"] == 2
    assert sum(row["training_images"] for row in state["class_balance"]) == 32
    cut_after("run", 8)  # one evaluation without a gain
    assert train(recipe, options) == result
    assert last_state("run") == (state, arrays)
    train(recipe, options)
    assert "complete: the run ended after update 12\n" in capsys.readouterr().out
    kept = RunFolder(Path("run"))
    first = load_checkpoint(kept.checkpoint_path(2)).weights
    frozen = [name for name in first if name.startswith(("conv1", "bn1", "layer"))]
    assert len(frozen) == len(first) - 2
    assert all(first[name].tobytes() == arrays[name] for name in frozen)


@pytest.mark.parametrize(("every", "saved"), [(0, [5, 10, 15]), (4, [15]), (10, [10, 15])])
def test_an_epoch_is_saved_when_due_or_best(every, saved):
    assert [
        update
        for update in (5, 10, 15)
        if save_is_due(Progress(update), every, is_over=update == 15)
    ] == saved
    assert save_is_due(Progress(5, {"top1": 0.5, "update": 5}), every, is_over=False)


def test_resuming_with_other_workers_warns_of_other_bits():
    then = layout(accumulate=2)
    assert layout_notes(then, then) == []
    workers, parts = layout_notes(then, layout(2, accumulate=4))
    assert workers.startswith(
        "resuming with 2 workers instead of 1: samples stay the same, but results differ"
    )
    assert parts.startswith("resuming with 4 micro-batches instead of 2: ")


def test_resuming_with_smaller_evaluation_batches_is_noted():
    """An older checkpoint has no such entry, and computed 64 at a time."""
    then = layout()
    assert then.pop("samples at a time in evaluation") == 64
    for size in (64, 1000):
        assert layout_notes(then, layout(eval_batch_size=size)) == []
    (note,) = layout_notes(then, layout(eval_batch_size=8))
    assert note == (
        "resuming with 8 samples at a time in evaluation instead of 64: some bits of the "
        "evaluations may differ"
    )


OTHERS = {
    "CPU count": 64,
    "thread count": 17,
    "device": "Ascend",
    "processor": "8086",
    "mode": "pynative",
    "fast-math": "on",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "MindSpore": "2.7.2",
    "NumPy": "1.25.0",
    "convolutions": "products",
}


def test_each_changed_condition_gets_a_note():
    now = layout()
    others = {"workers", "micro-batches", "samples at a time in evaluation", process.REASON}
    assert {*OTHERS, *others} == now.keys()
    for name, then in OTHERS.items():
        change = f"resuming with {name} {now[name]} instead of {then}"
        line = layout_notes({**now, name: then}, now)[0]
        assert line == f"{change}: some bits of the results may differ"
    assert layout_notes({**now, process.REASON: "of a test"}, now) == []
    older = {name: value for name, value in now.items() if name != "convolutions"}
    assert layout_notes(older, now) == []


def test_another_pillow_is_noted_if_images_are_decoded():
    now = parallel_layout(RunOptions(), Workers(), decodes_images=True)
    (note,) = layout_notes({**now, "Pillow": "9.1.0"}, now)
    assert note.startswith(f"resuming with Pillow {now['Pillow']} instead of 9.1.0: some bits")
    then = layout()  # as an older version has stored it
    assert "Pillow" not in then
    assert layout_notes(then, now) == []


@pytest.mark.parametrize(
    ("cpus", "threads", "lines"), [(64, 4, 0), (4, 64, 0), (64, 64, 1), (5, 8, 1)]
)
def test_resuming_with_over_4_threads_warns_even_unchanged(monkeypatch, cpus, threads, lines):
    for name, value in (("cpus", cpus), ("threads", threads)):
        monkeypatch.setitem(process.started, name, value)
    now = layout()
    notes = layout_notes(now, now)
    assert len(notes) == lines
    assert all("threads: MindSpore splits work" in note and "--threads 4" in note for note in notes)


def test_threads_cpus_and_instructions_that_differ_are_named(python):
    words = shlex.split(
        "-m resnet_fn.train --model resnet8 --image-size 8 --batch-size 480 --epochs 1 "
        "--mode pynative --no-progress --out-dir run"
    )
    here = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.cpu_count()))
        cpus = len(os.sched_getaffinity(0))
        python(*words)
        os.sched_setaffinity(0, {min(here)})
        output = python(*words, "--threads", "7", ONEDNN_MAX_CPU_ISA="SSE41").stdout
    finally:
        os.sched_setaffinity(0, here)
    parts = " ".join(output.split()).split("resuming with ")  # long lines are wrapped
    assert [part.partition(":")[0] for part in parts if " instead of " in part] == [
        *([f"CPU count 1 instead of {cpus}"] if cpus > 1 else []),
        f"thread count 7 instead of {cpus}",
        f"ONEDNN_MAX_CPU_ISA SSE41 instead of {os.environ.get('ONEDNN_MAX_CPU_ISA', 'not set')}",
    ]
