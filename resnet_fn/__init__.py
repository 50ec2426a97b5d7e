"""Train residual networks on MindSpore 2.x with a functional loop that you can read.

The whole Python API is listed in ``__all__``; each name is imported when it is first used, so that
``python -m resnet_fn.train --help`` and a mistyped flag answer without loading MindSpore.
"""

import importlib
import sys
import types

from resnet_fn.runtime.parent import end_with, waiting_msrun
from resnet_fn.runtime.process import prepare_environment

# MindSpore reads these variables while its library loads, so they must be set before anybody imports it.
prepare_environment()
# As early as possible: a worker must not outlive an msrun that waits for it.
if _msrun := waiting_msrun():
    end_with(_msrun)

__version__ = "0.1.0"

_HOMES = {
    "Recipe": "resnet_fn.config.recipe",
    "RunOptions": "resnet_fn.config.options",
    "recipes": "resnet_fn.recipes",
    "create_model": "resnet_fn.models",
    "train": "resnet_fn.run.loop",
    "evaluate": "resnet_fn.evaluation.evaluate",
    "make_train_step": "resnet_fn.update.step",
    "StepPlan": "resnet_fn.update.step",
    "StepResult": "resnet_fn.update.step",
    "TrainState": "resnet_fn.update.state",
    "make_state": "resnet_fn.update.state",
    "moving_average": "resnet_fn.update.average",
    "Workers": "resnet_fn.runtime.workers",
    "with_all_reduce": "resnet_fn.update.exchange",
    "make_flags": "resnet_fn.update.exchange",
    "make_eval_step": "resnet_fn.update.eval_step",
    "make_optimizer": "resnet_fn.update.optimizer",
    "weight_decay_groups": "resnet_fn.models.groups",
    "momentum_sgd": "resnet_fn.update.optimizer",
    "adam": "resnet_fn.update.adaptive",
    "adamw": "resnet_fn.update.adaptive",
    "lars": "resnet_fn.update.adaptive",
    "lamb": "resnet_fn.update.adaptive",
    "make_loss": "resnet_fn.update.loss",
    "make_schedule": "resnet_fn.update.schedule",
    "cosine_warmup": "resnet_fn.update.schedule",
    "DynamicLossScaler": "resnet_fn.update.loss_scale",
    "save_checkpoint": "resnet_fn.checkpoint.folder",
    "load_checkpoint": "resnet_fn.checkpoint.folder",
    "compare_step": "resnet_fn.parity.replay",
    "assert_parity": "resnet_fn.parity.replay",
    "load_weights": "resnet_fn.weights.load",
    "convert_weights": "resnet_fn.weights.load",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'resnet_fn' has no attribute {name!r}; it has: {', '.join(__all__)}")
    home = importlib.import_module(_HOMES[name])
    value = home if name == "recipes" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(types.ModuleType):
    """``train`` and ``evaluate`` each name a function and a command's file; as attributes the functions win.

    Without this, importing the file ``resnet_fn/train.py`` would put the module where the function was.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("train", "evaluate") and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
