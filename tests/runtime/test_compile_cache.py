"""Graphs of earlier processes: the same bits as compiled ones, for what they are made of and nothing else."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn.runtime import compile_cache, versions
from resnet_fn.runtime.compile_cache import CompileCache, cache_folder

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
    {"options": {"accumulate": 3}, "ema": 0.8},
    {"drop_path": 0.2, "dropout": 0.3, "momentum": 0.0, **PLAIN},
    {"loss": "focal", "cutmix": 1.0, "smoothing_over": "others", "label_smoothing": 0.2},
    {"loss": "bce", "freeze": "stem,layer1", "head_learning_rate": 0.01, **NONE},
    {
        "layer_decay": 0.75,
        "decay_all": True,
        "optimizer": "adam",
        **PLAIN,
        "options": {"mode": "split", "accumulate": 2},
    },
]


def run(recipes, kind, cache, launcher=()):
    done = subprocess.run(
        [*(launcher or [sys.executable]), DRIVER, json.dumps(recipes), kind],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bits(results):
    return [result["bits"] for result in results]


def said(results):
    return [result["said"] for result in results]


@measured
@pytest.mark.slow
def test_ten_recipes_compute_the_same_bits_from_the_cache(tmp_path):
    plain, cold, warm = (run(RECIPES, kind, tmp_path) for kind in ("none", "cache", "cache"))
    assert bits(plain) == bits(cold) == bits(warm)
    assert all(math.isfinite(loss) for result in warm for loss in result["losses"])
    assert len(set(bits(warm))) == len(RECIPES)
    assert said(cold) == [["compiling…"]] * len(RECIPES)
    assert said(warm) == [[f"compiled before: taken from {tmp_path}/resnet_fn/graphs"]] * len(RECIPES)
    other_seed = [{**recipe, "seed": 3} for recipe in RECIPES[:2]]
    assert bits(run(other_seed, "none", tmp_path)) == bits(from_cache := run(other_seed, "cache", tmp_path))
    assert said(from_cache) == said(warm)[:2]
