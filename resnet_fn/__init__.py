"""Train residual networks on MindSpore 2.x with a functional loop that you can read.

    result = resnet_fn.train(resnet_fn.recipes.digits(epochs=2))
    resnet_fn.predict(result.run, "seven.png")

`resnet_fn.__all__` lists the public names. help(resnet_fn.train) describes `train`. To list the
commands, run python -m resnet_fn.

a run               train, fit, evaluate, predict, export, load_run, Recipe, RunOptions, recipes
nets and weights    create_model, load_weights, convert_weights
beside PyTorch      compare_step, assert_parity
a loop of your own  start, Workers, open_dataset, make_feed, score, summarise
  its step          make_train_step, StepPlan, StepResult, with_all_reduce, make_flags, make_eval_step
  loss, schedule    make_loss, DynamicLossScaler, make_schedule, cosine_warmup
  optimizer         make_optimizer, momentum_sgd, adam, adamw, lars, lamb, lion, parameter_groups,
                    weight_decay_groups
  state             TrainState, make_state, moving_average, save_checkpoint, load_checkpoint, restore_state
"""

# ruff: noqa: E402

import importlib.util
import os
import sys


def _obstacle() -> str:
    folder = os.path.dirname(os.path.realpath(__file__))
    version = sys.version_info[:2]
    if not (3, 11) <= version <= (3, 12):  # setup.cfg's python_requires
        return (
            f"Python {version[0]}.{version[1]} is too {'old' if version < (3, 11) else 'new'}; "
            "use 3.11 or 3.12"
        )
    if sys.path and os.path.realpath(sys.path[0] or ".") == folder:
        return f"{folder}: its module inspect hides Python's own; run cd {os.path.dirname(folder)}"
    if importlib.util.find_spec("numpy") is None:
        return "numpy is not installed; run pip install . in the folder of the clone"
    return ""


if _text := _obstacle():  # before imports that would fail less clearly
    if sys.argv[0] == "-m":  # the error of `python -m resnet_fn.train` is one line
        sys.exit(f"resnet_fn: error: {_text}")
    raise ImportError(_text)

import traceback
import types

from resnet_fn.runtime.first_process import let_signals_end_process_1
from resnet_fn.runtime.parent import die_with_parent, msrun_command
from resnet_fn.runtime.process import prepare_environment

# MindSpore reads these variables while its library loads, so this stands before all imports of
# MindSpore.
prepare_environment()
let_signals_end_process_1()
# A worker must end when the msrun process that started it ends.
_parent = os.getppid()
if msrun_command():
    die_with_parent(_parent)

__version__ = "0.2.0"

# Modules and their public names. A name is imported when it is first used, so that `python -m
# resnet_fn.train --help` does not load MindSpore.
_MODULES = {
    "resnet_fn.config.recipe": "Recipe",
    "resnet_fn.config.options": "RunOptions",
    "resnet_fn.recipes": "recipes",
    "resnet_fn.run.loop": "train",
    "resnet_fn.run.fit": "fit",
    "resnet_fn.evaluation.evaluate": "evaluate",
    "resnet_fn.evaluation.predict": "predict",
    "resnet_fn.evaluation.export": "export",
    "resnet_fn.evaluation.loaded_net": "load_run",
    "resnet_fn.models": "create_model",
    "resnet_fn.weights.load": "load_weights convert_weights",
    "resnet_fn.runtime.process": "start",
    "resnet_fn.runtime.workers": "Workers",
    "resnet_fn.data.sources.load": "open_dataset",
    "resnet_fn.data.feed": "make_feed",
    "resnet_fn.evaluation.scoring": "score",
    "resnet_fn.evaluation.task": "summarise",
    "resnet_fn.update.step": "make_train_step StepPlan StepResult",
    "resnet_fn.update.exchange": "with_all_reduce make_flags",
    "resnet_fn.evaluation.eval_step": "make_eval_step",
    "resnet_fn.update.loss": "make_loss",
    "resnet_fn.update.loss_scale": "DynamicLossScaler",
    "resnet_fn.update.schedule": "make_schedule cosine_warmup",
    "resnet_fn.update.optimizer": "make_optimizer momentum_sgd",
    "resnet_fn.update.adaptive": "adam adamw lars lamb lion",
    "resnet_fn.update.groups": "parameter_groups weight_decay_groups",
    "resnet_fn.update.state": "TrainState make_state",
    "resnet_fn.update.average": "moving_average",
    "resnet_fn.checkpoint.folder": "save_checkpoint load_checkpoint",
    "resnet_fn.checkpoint.parameters": "restore_state",
    "resnet_fn.parity.replay": "compare_step assert_parity",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'resnet_fn' has no attribute {name!r}; it has: {', '.join(__all__)}"
        )
    home = importlib.import_module(_HOMES[name])
    value = home if name == "recipes" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Without this, help() would print the docstrings of all names in 1,250 lines.
    by_pydoc = any(frame.f_code.co_name == "docmodule" for frame, _ in traceback.walk_stack(None))
    return [] if by_pydoc else sorted(__all__)


class _Package(types.ModuleType):
    """Keeps functions such as `resnet_fn.train` when the modules of the same names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and name != "recipes" and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
