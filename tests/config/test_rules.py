"""Which settings need which others, and what happens to those that nothing can use."""

import inspect
import json
from pathlib import Path

import pytest

from resnet_fn import recipes
from resnet_fn.config import rules
from resnet_fn.config.cli import UsageError
from resnet_fn.config.draft import Source
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.stored import recipe_from_dict
from resnet_fn.config.values import to_dict
from resnet_fn.train import parse

RECIPE = Recipe()  # of the fixture `checkpoint`


def test_no_rule_reads_what_a_later_rule_changes():
    """Its names are settings, and no rule reads what a rule below it leaves out or changes."""
    names = {*Recipe.declarations, *RunOptions.declarations}
    below = set()
    for rule in reversed(rules.RULES):
        reads = {*inspect.signature(rule.holds).parameters}
        settings = {*rule.names}
        assert names >= reads | settings, rule
        # else no other setting could be weaker or stronger
        assert all(reads - {name} for name in settings), rule
        assert not (reads - settings) & below, rule
        changed_by = {"drop": settings, "error": set()}
        below |= changed_by.get(rule.on_break, reads)


def test_dropped_values_obey_the_rules_that_drop_them():
    """With the other settings as they are by default."""
    declarations = Recipe.declarations | RunOptions.declarations
    for rule in rules.RULES:
        if rule.on_break == "drop" and {*rule.names} & {*rule.reads}:
            values = {name: declarations[name].default for name in rule.reads}
            dropped = {name: declarations[name].dropped_to for name in rule.names}
            assert not rule.broken_by(values | dropped), rule


def test_a_rule_that_replaces_reads_one_setting():
    replacing = [rule for rule in rules.RULES if isinstance(rule.on_break, rules.Replace)]
    assert replacing
    assert all(len(rule.reads) == 1 for rule in replacing)
    assert not any({*rule.reads} & {*rule.names} for rule in replacing)


WITHOUT_EFFECT = (
    "--policy-ops 2|--beta2 0.999|--ema-every 1|--ema-warmup|--trust-coefficient "
    "0.001|--loss-scale 64|"
    "--crop-scale 0.08|--mix-off-epochs 3|--milestone-factor 0.1|--synthetic-classes 10|"
    "--smoothing-over others --label-smoothing 0|"
    "--policy-noise 1|--label-threshold 0.2|--validation-share 0.2|--color-jitter "
    "0.1|--reset-head|--policy-magnitude 0|"
    "--zero-init-residual --norm none|--on-bad-sample skip|--data-threads "
    "2|--check-files|--max-skips 20|"
    "--trust-coefficient 0.1 --optimizer lars --weight-decay 0|--head-lr-factor 2 --freeze stem,fc|"
    "--head-lr-factor 2 --train-only layer?|--ema-start 20 --ema 0.9|--mix-off-epochs 20 --mixup "
    "0.2|"
    "--fast-math|--which best|--monitor map|--val-list x|--train-list x|"
    "--on-bad-sample skip --dataset mindrecord|--check-files --dataset mindrecord|"
    "--zero-init-residual --weights x|--threads 2 --device Ascend"
)


@pytest.mark.parametrize("words", WITHOUT_EFFECT.split("|"))
def test_a_chosen_setting_without_effect_is_rejected(words):
    flag, *_ = words.removeprefix("--").partition(" ")
    with pytest.raises(UsageError, match=rf"(^|; ){flag.replace('-', '_')}: \S+ (needs|is for) "):
        parse(words.split())


@pytest.mark.parametrize(
    "words", ["--train-only *.bias", "--freeze fc.weight", "--train-only fc.weight"]
)
def test_a_partly_trained_last_layer_has_a_rate(words):
    assert parse(["--head-lr-factor", "2", *words.split()])[0].head_lr_factor == 2


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--epochs x --milestones 30;60", "epochs: 'x'|milestones: '30;60' is not"),
        (
            "--batch-size y --loss-scale 64 --keep-last 1 --trust-coefficient 0.1",
            "batch_size: 'y'|keep_last: 1|2 or more|trust_coefficient: 0.1|lars|loss_scale: "
            "64.0|--precision fp16",
        ),
        (
            "--recipe imagenet_resnet50_v2 --bs 6",
            "repeats: 4 does not divide batch 6|give a batch size that is a multiple of 4, or "
            "--repeats 1",
        ),
        (
            "--recipe imagenet_resnet50_v2 --epochs 3",
            "warmup_epochs: 5.0 is above epochs 3|give --warmup-epochs 3 or less",
        ),
        (
            "--recipe finetune --class-weights balanced --sampling balanced",
            "class_weights: 'balanced'|--sampling balanced|give one of them",
        ),
        (
            "--recipe finetune --multi-label --class-weights balanced",
            "multi_label: True|--class-weights",
        ),
        (
            "--recipe finetune --freeze stem --train-only fc",
            "train_only: 'fc'|--freeze stem|give one",
        ),
        ("--multi-label", "multi_label: True|--dataset imagefolder"),
        (
            "--mixup 0.2 --epochs 3 --mix-off-epochs 3",
            "mixup: 0.2 needs --mix-off-epochs below epochs (3)",
        ),
        ("--val-list x", "val_list: 'x' needs --train-list"),
        ("--train-list x", "train_list: 'x' needs --val-list FILE|--validation-share 0.2"),
        (
            "--min-learning-rate 9",
            "min_learning_rate: 9.0 is above learning_rate|give a smaller --min-learning-rate",
        ),
        ("--recipe imagenet_resnet50_v1 --milestones", "schedule: 'step'|needs --milestones"),
        ("--dataset own", "dataset: 'own'|resnet_fn.fit"),
        ("--model own", "model: 'own'|resnet_fn.fit|give a data set or net"),
        (
            "--optimizer lars --weight-decay 0 --trust-coefficient 0.1",
            "trust_coefficient: 0.1|--weight-decay above 0",
        ),
        ("--sync-batchnorm --accumulate 2", "accumulate: 2|--accumulate 1|--no-sync-batchnorm"),
    ],
)
def test_contradicting_settings_are_named_with_a_fix(words, parts, raises_line):
    flags = [*words.split(), ""] if words.endswith("--milestones") else words.split()
    with raises_line(*parts.split("|"), kind=UsageError):
        parse(flags)


def test_stored_balanced_weights_and_sampling_are_still_read():
    both = {**to_dict(Recipe()), "class_weights": "balanced", "sampling": "balanced"}
    stored = recipe_from_dict(both)
    assert (stored.class_weights, stored.sampling) == ("balanced", "balanced")
    assert stored.changed(epochs=30).class_weights == "balanced"


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ({"dataset": "mindrecord", "on_bad_sample": "skip"}, {"check_files": "yes"}),
        ({"weights": "x", "zero_init_residual": True}, {"device": "Ascend", "threads": 2}),
    ],
)
def test_a_stored_run_resumes_with_settings_without_effect(recipe, options, checkpoint):
    """By its folder, and by the command that began it; a new run is rejected."""
    stored = Recipe.unchecked(recipe)
    checkpoint("run", 1, recipe=stored)
    config = {"recipe": to_dict(stored), "options": to_dict(RunOptions.unchecked(options))}
    Path("run/config.json").write_text(json.dumps(config))
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (recipe | options).items()]
    words = [word.removesuffix("=True").removesuffix("=yes") for word in words]
    for resumed in (["--resume", "run"], ["--resume", "run", *words], ["--out-dir", "run", *words]):
        again, how, notes = parse(resumed)
        assert {name: getattr(again, name) for name in recipe} == recipe
        assert {name: getattr(how, name) for name in options} == options
        assert not [note for note in notes if note.split()[0] in recipe | options]
    for words_of_new in (words, [*words, "--out-dir", "new"]):
        with pytest.raises(UsageError, match="leave it out"):
            parse(words_of_new)


def test_no_rule_reads_a_value_that_cannot_be():
    for words, fault in (
        ("--epochs x --warmup-epochs 30", "epochs: 'x'"),
        (
            "--dataset imagenet --crop-scale 0.5",
            "dataset: 'imagenet' is unknown; did you mean imagefolder",
        ),
    ):
        with pytest.raises(UsageError, match=f"^{fault}") as caught:
            parse(words.split())
        assert str(caught.value).count(": ") == 1


def test_multi_label_sets_its_loss_and_monitor():
    for words, loss, count in (("", "bce", 3), ("--loss focal", "focal", 2)):
        recipe, _, left_out = parse(["--recipe", "finetune", "--multi-label", *words.split()])
        assert (recipe.loss, recipe.label_smoothing, recipe.monitor) == (loss, 0.0, "map")
        assert len(left_out) == count
        assert "label_smoothing 0.1 becomes 0.0: multi_label needs --label-smoothing 0" in left_out
    files = Recipe(dataset="imagefolder", multi_label=True)
    assert files == Recipe(dataset="imagefolder").changed(multi_label=True)
    for given in ({"sampling": "balanced"}, {"class_weights": "balanced"}):
        assert files == Recipe(dataset="imagefolder", **given).changed(multi_label=True)
    assert (files.loss, files.label_smoothing, files.monitor) == ("bce", 0.0, "map")
    with pytest.raises(ValueError, match=r"^multi_label: True needs --loss bce or focal$"):
        # typed, though it is the default
        Recipe(dataset="imagefolder", multi_label=True, loss="cross_entropy")


@pytest.mark.parametrize(
    ("flags", "off"),
    [
        ("--dataset imagefolder", {"max_shift": 0, "max_rotation": 0.0, "max_zoom": 0.0}),
        ("--opt lars", {"nesterov": False}),
        ("--recipe imagenet_resnet50_v1 --sched cosine", {"milestones": ()}),
        ("--recipe imagenet_resnet50_v2 --image-size 300 --eval-size 0", {"eval_resize": 0}),
        # one leads to the next: without colours no policy, and without a policy no noise in its
        # strength
        ("--recipe imagenet_resnet50_a3 --dataset digits", {"policy": "", "policy_noise": 0.0}),
        ("--recipe imagenet_resnet50_a3 --mixup 0 --cutmix 0", {"label_threshold": 0.0}),
        ("--recipe imagenet_resnet50_a3 --policy=", {"policy_magnitude": 9, "policy_noise": 0.0}),
        ("--recipe finetune --freeze fc.*", {"head_lr_factor": 1.0}),
        (
            "--recipe imagenet_resnet50_v2 --epochs 5",
            {"ema": 0.0, "ema_start": 0.0, "ema_every": 1, "ema_warmup": True},
        ),
    ],
)
def test_useless_settings_of_recipes_are_dropped_and_named(flags, off):
    recipe, _, left_out = parse(flags.split())
    assert {name: getattr(recipe, name) for name in off} == off
    named = {line.partition(" ")[0] for line in left_out}
    # which is a default, not the recipe's
    assert named >= {name for name in off if name != "nesterov"}
    assert all(" is left out: it " in line for line in left_out)


def test_chosen_settings_stay_chosen_in_a_changed_copy():
    recipe = Recipe(optimizer="adamw", beta2=0.95).changed(optimizer="lion")
    assert recipe.beta2 == 0.95
    assert recipe.chosen == {"optimizer": Source.FLAG, "beta2": Source.FLAG}


def test_what_nothing_uses_any_more_is_not_chosen():
    """Also a default, which no rule changes."""
    recipe = Recipe(dataset="imagefolder", policy="randaugment", policy_ops=2, precision="fp16")
    assert "policy_ops" in recipe.chosen
    other = recipe.changed(policy="trivialaugment", precision="fp32")
    assert other == Recipe(**other.chosen_values())
    assert {*other.chosen} == {"dataset", "policy", "precision"}
    assert not Recipe(optimizer="adamw", nesterov=False).chosen.keys() & {"nesterov"}
    automatic = recipes.imagenet_resnet50_v2(eval_resize=0).changed(seed=1)
    assert {*automatic.chosen} == {"eval_resize", "seed"}


def test_keywords_and_changed_values_count_as_chosen():
    assert not Recipe(optimizer="adamw").nesterov
    for fields in ({"policy_ops": 3}, {"policy_ops": 2}):
        with pytest.raises(
            ValueError, match=f"policy_ops: {fields['policy_ops']} needs --policy randaugment"
        ):
            Recipe(**fields)
    a3 = recipes.recipe("imagenet_resnet50_a3")
    assert a3.changed(policy="") == recipes.imagenet_resnet50_a3(policy="")
    assert recipes.imagenet_resnet50_a3(policy="").policy_magnitude == 9
