import copy
import dataclasses
import inspect
import pickle

import pytest

from resnet_fn import recipes
from resnet_fn.config.cli import UsageError
from resnet_fn.config.fields import changed, to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.train import parse


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--lr", "0.3", "--wd=0", "--bs", "32"], {"learning_rate": 0.3, "weight_decay": 0.0, "batch_size": 32}),
        (["--batch", "8", "--arch", "resnet8"], {"batch_size": 8, "model": "resnet8"}),
        (["--opt", "adamw", "--beta1", "0.8", "--eps", "0.1"], {"optimizer": "adamw", "momentum": 0.8, "epsilon": 0.1}),
        (["--opt", "lamb", "--sched", "linear"], {"optimizer": "lamb", "schedule": "linear"}),
        (["--smoothing", "0", "--img-size", "8"], {"label_smoothing": 0.0, "image_size": 8}),
        (["--min-lr", "0.01", "--data-path", "x", "--output", "y"], {"min_learning_rate": 0.01}),
    ],
)
def test_the_usual_aliases_are_accepted(flags, fields):
    recipe, *_ = parse(flags)
    assert {name: getattr(recipe, name) for name in fields} == fields


WITHOUT_EFFECT = (
    "--policy-ops 2|--beta2 0.999|--ema-every 1|--trust-coefficient 0.001|--loss-scale 64|--crop-scale 0.08|"
    "--mix-off-epochs 3|--milestone-factor 0.1|--synthetic-classes 10|--smoothing-over others --label-smoothing 0|"
    "--policy-noise 1|--label-threshold 0.2|--validation-share 0.2|--color-jitter 0.1|--reset-head|--beta2 0|"
    "--zero-init-residual --norm none|--on-bad-sample skip|--data-threads 2|--check-files|--max-skips 20|"
    "--trust-coefficient 0.1 --optimizer lars --weight-decay 0|--head-learning-rate 0.1 --freeze stem,fc|"
    "--head-learning-rate 0.1 --train-only layer?|--ema-start 20 --ema 0.9|--mix-off-epochs 20 --mixup 0.2"
)


@pytest.mark.parametrize("words", WITHOUT_EFFECT.split("|"))
def test_a_setting_without_effect_is_rejected_where_it_was_typed_though_it_be_the_default(words):
    flag, *_ = words.removeprefix("--").partition(" ")
    with pytest.raises(UsageError, match=rf"(^|; ){flag.replace('-', '_')}: \S+ (needs|is for) "):
        parse(words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--bach-size 3 --epochs x --learning-rate fast --milestones 30;60 --eval-batch-size 0",
            "unknown argument '--bach-size'; did you mean --batch-size or --eval-batch-size or --eval-size?; "
            "epochs: 'x' is not a whole number; learning_rate: 'fast' is not a number; "
            "milestones: '30;60' is not numbers with commas; eval_batch_size: 0 is too small; give 1 or more",
        ),
        (
            "--batch-size y --loss-scale 64 --keep-last 1 --trust-coefficient 0.1",
            "batch_size: 'y' is not a whole number; trust_coefficient: 0.1 needs --optimizer lars; "
            "loss_scale: 64.0 needs --precision fp16; keep_last: 1 is too small; give 2 or more",
        ),
        ("--seed 4294967295", "seed: 4294967295 is not in 0..4294967294"),
        # Nothing is said of what depends on a value that cannot be.
        ("--epochs x --warmup-epochs 30", "epochs: 'x' is not a whole number"),
        ("--precision fp61 --loss-scale 64", "precision: 'fp61' is unknown; use one of fp32, fp16"),
        ("--batch-size y --repeats 7", "batch_size: 'y' is not a whole number"),
        (
            "--dataset imagenet --crop-scale 0.5 --max-shift 9",
            "dataset: 'imagenet' is unknown; did you mean imagefolder?",
        ),
        (
            "--recipe imagenet_resnet50_v2 --epochs 3 --bs 6",
            "batch_size: 6 does not go with repeats 4, which does not divide the batch size 6; give --repeats too; "
            "epochs: 3 does not go with warmup_epochs 5.0, which is above epochs (3); give --warmup-epochs too",
        ),
        ("--epochs 3 --warmup-epochs 4", "warmup_epochs: 4.0 is above epochs (3)"),
        (
            "--recipe finetune --multi-label --class-weights balanced --sampling balanced",
            "multi_label: True goes without --class-weights; multi_label: True needs --sampling shuffle",
        ),
        ("--multi-label", "multi_label: True needs --dataset imagefolder, as in --recipe finetune"),
        ("--mixup 0.2 --label-threshold 0.2", "label_threshold: 0.2 needs --loss bce or focal"),
        ("--which best", "which: 'best' needs weights; give --weights FILE"),
        ("--monitor map", "monitor: 'map' needs --multi-label"),
        ("--max-shift 3 --dataset imagefolder", "max_shift: 3 is for sets in memory; give 0 (image files"),
    ],
)
def test_all_faults_are_named_at_once(words, message):
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert str(caught.value).startswith(message)


def test_several_classes_an_image_set_what_they_need_where_nothing_else_was_typed():
    for words, loss, count in (("", "bce", 3), ("--loss focal", "focal", 2)):
        recipe, _, left_out = parse(["--recipe", "finetune", "--multi-label", *words.split()])
        assert (recipe.loss, recipe.label_smoothing, recipe.monitor) == (loss, 0.0, "map")
        assert len(left_out) == count
        assert "label_smoothing 0.1 is left out: multi_label needs --label-smoothing 0" in left_out
    files = Recipe(dataset="imagefolder", multi_label=True)
    assert files == dataclasses.replace(Recipe(dataset="imagefolder"), multi_label=True)
    assert files == changed(
        Recipe(dataset="imagefolder", sampling="balanced", class_weights="balanced"), multi_label=True
    )
    assert (files.loss, files.label_smoothing, files.monitor) == ("bce", 0.0, "map")
    with pytest.raises(ValueError, match=r"^multi_label: True needs --loss bce or focal$"):
        Recipe(dataset="imagefolder", multi_label=True, loss="cross_entropy")  # typed, though it is the default


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_settings_can_be_copied(copied):
    options = RunOptions(log_every=1, keep_last=5)
    assert copied(options) == options
    assert vars(copied(options)) == vars(options)


@pytest.mark.parametrize(
    ("flags", "off"),
    [
        (["--dataset", "imagefolder"], {"max_shift": 0, "max_rotation": 0.0, "max_zoom": 0.0}),
        (["--opt", "lars"], {"nesterov": False}),
        (["--momentum", "0"], {"nesterov": False}),
        (["--recipe", "imagenet_resnet50_v1", "--sched", "cosine"], {"milestones": ()}),
        (["--recipe", "imagenet_resnet50_v2", "--image-size", "300", "--eval-size", "0"], {"eval_resize": 0}),
        # one leads to the next: without colours no policy, and without a policy no noise in its strength
        (["--recipe", "imagenet_resnet50_a3", "--dataset", "digits"], {"policy": "", "policy_noise": 0.0}),
        (["--recipe", "imagenet_resnet50_a3", "--mixup", "0", "--cutmix", "0"], {"label_threshold": 0.0}),
        (["--recipe", "imagenet_resnet50_a3", "--loss", "cross_entropy"], {"label_threshold": 0.0}),
        (["--recipe", "imagenet_resnet50_a3", "--policy", ""], {"policy_magnitude": 9, "policy_noise": 0.0}),
        (["--recipe", "finetune", "--freeze", "fc.*"], {"head_learning_rate": 0.0}),
        (["--recipe", "imagenet_resnet50_v2", "--epochs", "5"], {"ema": 0.0, "ema_start": 0.0, "ema_every": 1}),
    ],
)
def test_what_only_the_recipe_brought_is_left_out_and_named_where_nothing_can_use_it(flags, off):
    recipe, _, left_out = parse(flags)
    assert {name: getattr(recipe, name) for name in off} == off
    named = {line.partition(" ")[0] for line in left_out}
    assert named >= {name for name in off if name != "nesterov"}  # which is a default, not the recipe's
    assert all(" is left out: it " in line for line in left_out)


def test_a_keyword_that_is_not_its_default_counts_as_typed_a_default_does_not():
    assert not Recipe(optimizer="adamw").nesterov
    with pytest.raises(ValueError, match="policy_ops: 3 needs --policy randaugment"):
        Recipe(policy_ops=3)
    a3 = recipes.recipe("imagenet_resnet50_a3")
    with pytest.raises(ValueError, match="policy_magnitude: 18 needs --policy randaugment"):
        dataclasses.replace(a3, policy="")
    assert changed(a3, policy="") == recipes.imagenet_resnet50_a3(policy="")
    assert recipes.imagenet_resnet50_a3(policy="").policy_magnitude == 9
    with pytest.raises(ValueError, match="epochs: 0 is too small; give 1 or more"):
        recipes.digits(epochs=0)


def test_a_field_that_does_not_exist_names_the_nearest():
    with pytest.raises(ValueError, match=r"^recipe: unknown field 'modell'; did you mean model"):
        Recipe(modell="resnet8")
    with pytest.raises(ValueError, match=r"^recipe: unknown field 'lerning_rate'; did you mean learning_rate"):
        dataclasses.replace(Recipe(), lerning_rate=0.1)
    with pytest.raises(ValueError, match=r"^recipe: unknown field 'lr'; did you mean learning_rate"):
        Recipe(lr=0.1)
    with pytest.raises(ValueError, match=r"^recipe: unknown field 'head_lr'; did you mean head_learning_rate"):
        recipes.finetune(head_lr=0.1)


def test_the_docstring_explains_each_field():
    assert "\n    learning_rate: peak learning rate, for the whole batch; default 0.2\n" in inspect.getdoc(Recipe)
    for config in (Recipe, RunOptions):
        for field in dataclasses.fields(config):
            assert field.metadata["meaning"], field.name
            assert f" {field.name}: {field.metadata['meaning']}" in config.__doc__


def test_milestones_that_are_never_reached_are_warned_of():
    v1 = recipes.recipe("imagenet_resnet50_v1")
    assert v1.notes == ()
    assert dataclasses.replace(v1, epochs=40).notes == (
        "warning: milestones 60: the run ends after epoch 40; the learning rate never drops there",
    )
    assert dataclasses.replace(v1, epochs=20).notes[0].startswith("warning: milestones 30, 60: ")


def test_sgds_learning_rate_for_adam_is_warned_of():
    adam = Recipe(optimizer="adamw", nesterov=False, learning_rate=0.2)
    assert adam.notes == (
        "warning: learning_rate 0.2: Adam moves every weight by about that much in an update; 0.001 is usual",
    )
    assert dataclasses.replace(adam, learning_rate=1e-3).notes == ()
    lars, lamb = (Recipe(optimizer=name, learning_rate=1e-3, weight_decay=0.0).notes for name in ("lars", "lamb"))
    assert (lars[0].split()[-1], lamb[0].split()[-1]) == ("SGD", "Adam")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beta2": 1.0}, r"beta2: 1.0 is not in \[0, 1\); give 0.999"),
        ({"batch_size": 0}, "batch_size: 0 is too small; give 1 or more"),
        ({"batch_size": 6.5}, "batch_size: 6.5 is not a whole number"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not finite; give a number"),
        ({"schedule": "cosin"}, "schedule: 'cosin' is unknown; use one of cosine, linear"),
        ({"warmup_epochs": 30.0}, r"warmup_epochs: 30.0 is above epochs \(20\)"),
        ({"schedule": "step"}, "go with --schedule step"),
        ({"schedule": "step", "milestones": (5.0, -1.0)}, r"milestones: \(5.0, -1.0\) must be above 0"),
        ({"schedule": "step", "milestones": (5.0,), "milestone_factor": 10.0}, r"is not in \(0, 1\); give 0.1"),
        ({"milestones": (3.0,)}, "needs --schedule step"),
        ({"dataset": "imagefolder", "crop_padding": 4}, "crop_padding: 4 is for sets in memory; give 0"),
        ({"policy": "trivialaugment"}, "policy: 'trivialaugment' needs colour images of 0..255, which the digits"),
        ({"repeats": 7}, "repeats: 7 does not divide the batch size 64"),
        ({"eval_size": 64, "eval_resize": 60}, "eval_resize: 60 is .* sets in memory are resized"),
        ({"dataset": "imagefolder", "eval_size": 64, "eval_resize": 60}, "eval_resize: 60 is below the crop of 64"),
        ({"erasing": 1.5}, r"erasing: 1.5 is not in \[0, 1\]"),
        ({"dataset": "synthetic", "policy": "trivialaugment", "policy_noise": 1.0}, "policy_noise: 1.0 needs --policy"),
    ],
)
def test_recipe_names_field_value_and_fix(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_options_are_checked_too():
    with pytest.raises(ValueError, match="keep_last: 1 is too small; give 2 or more"):
        RunOptions(keep_last=1)
    with pytest.raises(ValueError, match="device: 'GPU' is unknown; use one of CPU, Ascend"):
        RunOptions(device="GPU")
    with pytest.raises(ValueError, match="fast_math: True needs --device Ascend"):
        RunOptions(fast_math=True)
    assert changed(RunOptions(), fast_math=True, device="Ascend").fast_math


def test_every_recipe_survives_json():
    for recipe in (*recipes.RECIPES.values(), Recipe(schedule="step", milestones=(30.0, 60.0), epochs=90)):
        assert recipe_from_dict(to_dict(recipe)) == recipe
    # of an earlier version, which kept what nothing could use
    assert recipe_from_dict({"optimizer": "lamb", "nesterov": True, "policy_ops": 3}) == Recipe(optimizer="lamb")
    with pytest.raises(ValueError, match="recipe: unknown field 'batchsize'; did you mean batch_size"):
        recipe_from_dict({"batchsize": 3})
