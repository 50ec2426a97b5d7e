"""What a graph is made of: whatever changes it changes its key, and nothing else does."""

import dataclasses
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.graphs.key import NotCacheableError, ingredients
from resnet_fn.models import create_model
from resnet_fn.models.groups import weight_decay_groups
from resnet_fn.run.build import build_run
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.eval_step import make_eval_step
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import StepPlan, make_train_step

pytestmark = pytest.mark.usefixtures("device")

SMALL = {"model": "resnet8", "batch_size": 48, "image_size": 8}
ADAM, LARS = {"optimizer": "adamw", "nesterov": False}, {"optimizer": "lars", "nesterov": False}
EMA, FP16 = {"ema": 0.9}, {"precision": "fp16"}
# For each setting that is a constant, or decides on the shape, of the step's graph: two recipes that differ in it.
SHAPES = {
    "model": ({}, {"model": "resnet20"}),
    "stem": ({}, {"stem": "imagenet"}),
    "norm": ({}, {"norm": "none"}),
    "freeze": ({}, {"freeze": "stem"}),
    "train_only": ({}, {"train_only": "fc"}),
    "head_learning_rate": ({}, {"head_learning_rate": 0.01}),
    "layer_decay": ({"layer_decay": 0.8}, {"layer_decay": 0.75}),
    "optimizer": (ADAM, {**ADAM, "optimizer": "adam"}),
    "momentum": ({}, {"momentum": 0.8}),
    "beta2": (ADAM, {**ADAM, "beta2": 0.99}),
    "epsilon": (ADAM, {**ADAM, "epsilon": 1e-6}),
    "nesterov": ({}, {"nesterov": False}),
    "weight_decay": ({}, {"weight_decay": 1e-4}),
    "decay_all": ({}, {"decay_all": True}),
    "trust_coefficient": (LARS, {**LARS, "trust_coefficient": 0.01}),
    "ema": (EMA, {"ema": 0.8}),
    "ema_every": (EMA, {**EMA, "ema_every": 2}),
    "ema_start": (EMA, {**EMA, "ema_start": 1.0}),
    "clip_norm": ({}, {"clip_norm": 2.0}),
    "loss": ({}, {"loss": "bce"}),
    "label_smoothing": ({"label_smoothing": 0.1}, {"label_smoothing": 0.2}),
    "smoothing_over": ({"label_smoothing": 0.1}, {"label_smoothing": 0.1, "smoothing_over": "others"}),
    "class_weights": ({}, {"class_weights": "balanced"}),
    "precision": ({}, FP16),
    "loss_scale_interval": (FP16, {**FP16, "loss_scale_interval": 10}),
    "multi_label": (),  # on image lists alone
    "sync_batchnorm": (),  # among several workers
}
# Settings of the samples, of their order and of the run's length: a second seed starts from the first one's graphs.
SAME = {
    **{"name": "other", "seed": 3, "epochs": 7, "learning_rate": 0.3, "schedule": "linear", "warmup_epochs": 1.0},
    **{"min_learning_rate": 0.01, "monitor": "loss", "patience": 2, "max_shift": 1, "max_rotation": 3.0},
    **{"max_zoom": 0.1, "mixup": 0.1, "cutmix": 0.1, "initialisation": "torch", "zero_init_residual": True},
}


def step_words(changes, **options):
    """What the step of a recipe is made of, before it is compiled."""
    options = RunOptions(mode="pynative", **options)
    run = build_run(Recipe(**{**SMALL, **changes}), options, Workers(), RunFolder(Path()), StopRequest())
    return ingredients(run.train_step, ()).words


# What only the inputs and the Parameters show: their shapes, and whether there are any.
SHOWN = {
    *("dataset", "image_size", "eval_size", "eval_resize", "crop_padding", "crop_scale", "flip", "policy", "which"),
    *("policy_ops", "policy_magnitude", "policy_noise", "color_jitter", "erasing", "mix_switch", "mix_off_epochs"),
    *("label_threshold", "repeats", "sampling", "validation_share", "on_bad_sample", "synthetic_samples"),
    *("synthetic_classes", "drop_path", "dropout"),
    *("weights", "reset_head", "batch_size", "milestones", "milestone_factor", "loss_scale"),
}


@pytest.mark.slow
def test_every_setting_that_shapes_the_step_changes_its_key():
    assert {*SHAPES, *SAME, *SHOWN} == {field.name for field in dataclasses.fields(Recipe)}
    plain = step_words({})
    for name, pair in SHAPES.items():
        if pair:
            assert (step_words(pair[0]) if pair[0] else plain) != step_words(pair[1]), name
    assert plain != step_words({}, accumulate=2) != step_words({}, accumulate=3)
    assert plain == step_words(SAME)


def test_a_second_process_reads_the_same_and_another_number_is_another_key(python):
    code = "import tests.graphs.test_key as t; from resnet_fn.runtime import process; process.start(); "
    code += "print(t.small_step(1.0).digest({}))"
    digest = small_step(1.0).digest({})
    assert python("-c", code, cwd=Path(__file__).parents[2]).stdout.strip() == digest
    assert small_step(1.0 + 1e-7).digest({}) != digest != small_step(1.0).digest({"version": "another"})
    assert {name.split(".")[0] for name in small_step(1.0).parameters} >= {
        "conv1",
        "momentum",
        "sgd_stat",
        "kept",
        "scaler",
    }


def small_step(clip_norm):
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=4, in_channels=1)
    optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9)
    return ingredients(make_train_step(net, make_loss(), optimizer, plan=StepPlan(clip_norm), jit=lambda f: f), ())


def test_numbers_texts_and_arrays_count_by_their_value():
    values = [
        *(range(3), range(4), slice(3), slice(4), 1, 1.0, True, None, "1", (1,), [1], (1, 2), ((1,), 2)),
        *({"a": 1}, {"b": 1}, 0.0, -0.0, float("nan")),
        *(np.float32(1), np.float64(1), np.ones(1, np.float32), np.ones((1, 1), np.float32), Tensor([1.0])),
        *(Tensor([2.0]), Tensor([1.0], mindspore.float16), mindspore.float16, mindspore.float32),
        *(Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([1.0]), name="b"), Parameter(Tensor([1, 1]), name="a")),
        Parameter(Tensor([1.0]), name="a", requires_grad=False),
        *(mindspore.ops.SGD(0.0, 0.1, True), mindspore.ops.SGD(0.0, 0.2, True), nn.ReLU(), nn.Dense(1, 1)),
        *(nn.Dense(1, 1, has_bias=False), nn.Dense(1, 1).to_float(mindspore.float16), nn.BatchNorm2d(1)),
        *(nn.BatchNorm2d(1, momentum=0.8), nn.BatchNorm2d(1).set_train()),
        *(make_loss(0.1), make_loss(0.2), make_loss(0.1, "bce"), make_loss(0.1, weights=(1.0, 2.0)), make_eval_step),
    ]
    digests = [ingredients(value, ()).digest({}) for value in values]
    assert len(set(digests)) == len(values)
    assert digests[4] == ingredients(1, ()).digest({})
    assert digests[-4] == ingredients(make_loss(0.2), ()).digest({})
    one = Parameter(Tensor([1.0]), name="a")
    one.set_data(Tensor([5.0]))
    assert ingredients(one, ()).digest({}) == ingredients(Parameter(Tensor([1.0]), name="a"), ()).digest({})


def test_inputs_count_by_shape_and_dtype():
    def digest(*inputs):
        return ingredients(make_loss(), inputs).digest({})

    image, label = Tensor(np.zeros((2, 3), np.float32)), Tensor([1, 2])
    assert digest(image, label) == digest(image + 1, label)
    others = [digest(image), digest(label, image), digest(image.reshape(3, 2), label), digest((image, label))]
    others += [digest(image, label, None), digest(image.astype(mindspore.float16), label)]
    assert len({digest(image, label), *others}) == 7


def test_code_of_others_is_not_read():
    class Foreign(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return x

    for value in (Foreign(), test_inputs_count_by_shape_and_dtype, nn.SequentialCell(Foreign()), Path()):
        with pytest.raises(NotCacheableError, match="is no part of this package"):
            ingredients(value, ())
    twice = (Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([2.0]), name="a"))
    with pytest.raises(NotCacheableError, match="two Parameters are called a"):
        ingredients(twice, ())
