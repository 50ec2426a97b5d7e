"""A setting's declaration is all there is to know of it: its meaning, its bounds, what it needs."""

import dataclasses

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.train import parse


def test_every_field_explains_itself():
    for config in (Recipe, RunOptions):
        for field in dataclasses.fields(config):
            assert field.metadata["meaning"], field.name


WITHOUT_EFFECT = (
    "--policy-ops 2|--beta2 0.999|--ema-every 1|--trust-coefficient 0.001|--loss-scale 64|--crop-scale 0.08|"
    "--mix-off-epochs 3|--milestone-factor 0.1|--synthetic-classes 10|--smoothing-over others --label-smoothing 0|"
    "--policy-noise 1|--label-threshold 0.2|--validation-share 0.2|--color-jitter 0.1|--reset-head"
)


@pytest.mark.parametrize("words", WITHOUT_EFFECT.split("|"))
def test_a_setting_without_effect_is_rejected_where_it_was_typed_though_it_be_the_default(words):
    flag, *_ = words.removeprefix("--").partition(" ")
    with pytest.raises(UsageError, match=rf"^{flag.replace('-', '_')}: \S+ (needs|is for) "):
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
    ],
)
def test_all_that_is_wrong_is_told_at_once(words, message):
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert str(caught.value) == message
