"""The command `train` trains a net as a recipe describes."""

import signal

if __name__ == "__main__":
    # NumPy's import starts threads, which inherit this signal mask. See StopRequest.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

import os
from collections.abc import Sequence
from pathlib import Path

from resnet_fn.checkpoint.run_folder import draft_of_start, settings_of
from resnet_fn.config import cli, shared_flags
from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import say, shell_words
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.stored import draft_of_run
from resnet_fn.recipes import RECIPES, load_recipe
from resnet_fn.runtime import console, instructions

# The settings that --help lists first, and all settings that --help lists.
_FIRST = "dataset data_dir model weights epochs batch_size learning_rate seed out_dir resume"
_SHOWN = f"""{_FIRST} image_size validation_share group_by multi_label flip policy mixup freeze precision schedule
    warmup_epochs loss label_smoothing class_weights optimizer momentum weight_decay ema clip_norm monitor patience
    eval_every data_threads accumulate device threads checkpoint_every"""
_DATASETS = Recipe.declarations["dataset"].choices
_EXAMPLES = """examples:
  python -m resnet_fn.train                                      train on digits, on one worker
  python -m resnet_fn.train --epochs 5 --out-dir runs/short      change settings of the recipe
  python -m resnet_fn.train --recipe my.toml                     read the settings from a file
  python -m resnet_fn.launch --workers 2 -- --epochs 5           train on two workers
"""


def parse(arguments: Sequence[str]) -> tuple[Recipe, RunOptions, tuple[str, ...]]:
    """Parse the flags. Returns the recipe, the options, and lines on settings, such as a dropped
    one.
    """
    about = (
        "Train a net by a recipe. Each flag changes one setting\n(python -m resnet_fn.recipes "
        "NAME lists them)."
    )
    parser = cli.Parser("train", about, _EXAMPLES, "")
    names = f"recipe file (.toml), or one of {', '.join(RECIPES)}"
    parser.add_argument(
        "--help-all", action="help", help="show all settings; --help shows the most common ones"
    )
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"{names}; default digits; with --resume PATH: the run's"
    )
    first = cli.Parser("train", about)
    for flag in ("--recipe", "--resume"):
        first.add_argument(flag, default="")
    notes = list[str]()
    early, _ = first.parse_known([word for word in arguments if word not in ("-h", "--help")])
    if not early.recipe and early.resume not in ("", "auto", "never"):
        stored = settings_of(early.resume)
        try:
            base = draft_of_run(stored)
        except ValueError as error:
            raise ValueError(
                f"resume: {early.resume}: {error}; use the version of resnet_fn that wrote it"
            ) from None
        if not stored["options"]:
            notes.append("the run has no config.json; options not given here have default values")
    else:
        with cli.as_usage_error():
            base = load_recipe(early.recipe or "digits")
    values = base.plain_values()
    recipe = Recipe.unchecked(values)
    parser.description = (
        f"{about}\nDefaults are from the recipe {recipe.name}. A * marks values "
        "that the recipe sets."
    )
    top, shown = ([], []) if "--help-all" in arguments else (_FIRST.split(), _SHOWN.split())
    shared_flags.add_setting_flags(
        parser, recipe, RunOptions.unchecked(values), skip=("name",), first=top, shown=shown
    )
    given = shared_flags.settings_in(parser.parse(arguments), Recipe, RunOptions)
    name = given.get("dataset", "")
    if name not in _DATASETS and os.path.isdir(name):
        raise cli.UsageError(
            f"--dataset: {name!r} is a folder; give --dataset imagefolder --data-dir {name}"
        )
    with cli.as_usage_error():
        draft = draft_of_start(base, given)
    return (
        Recipe.from_draft(draft),
        RunOptions.from_draft(draft),
        (*notes, *draft.drop_notes),
    )


def resume_flags(options: RunOptions, run: Path) -> list[str]:
    """Return the flags to add to a stopped run's command, so that the command resumes the run."""
    if options.out_dir and options.resume in ("auto", "never"):
        return ["--resume", "auto"] if options.resume == "never" else []
    return [] if Path(options.resume).resolve() == run.resolve() else ["--resume", str(run)]


def main(arguments: Sequence[str]) -> int:
    """Train, and print the best result, or the command that resumes a stopped run."""
    recipe, options, left_out = parse(arguments)
    console.outlive_console()
    # MindSpore's threads must start with SIGINT blocked, too. From here on, Ctrl-C stops the run
    # after an update.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from resnet_fn.run.console import describe_best
    from resnet_fn.run.loop import train
    from resnet_fn.runtime.workers import join

    instructions.allow_choice()
    command = console.typed_command()  # read now, because msrun may end before the run
    result = train(recipe, options, left_out)
    if result.stopped:
        if join().is_main:
            say("to go on:", shell_words(*command, *resume_flags(options, result.run)))
        return 128 + result.stopped  # SIGINT stays blocked, so that it cannot change the exit code
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if join().is_main and result.best and result.last:
        run = shell_words(result.run)
        say(
            describe_best(recipe.monitor, result.best, result.last),
            "to write a report, and to predict other images:",
            cli.with_typed_command(
                f"python -m resnet_fn.evaluate {run} --which best --report {run}/report"
            ),
            cli.with_typed_command(
                f"python -m resnet_fn.predict {run} IMAGE_OR_FOLDER --which best"
            ),
        )
    return 0


if __name__ == "__main__":
    cli.run("train", main)
