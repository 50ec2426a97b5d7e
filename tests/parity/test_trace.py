"""The task of both sides: its recipe, schedule and batches."""

import numpy as np
import pytest

from resnet_fn.data.mix import draw_mixing, mix
from resnet_fn.parity.batches import make_batches, recipe_batches
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.common import dropout_notes
from resnet_fn.parity.trace.plan import AveragePlan
from resnet_fn.parity.trace.tree import map_tree, named_leaves, split
from resnet_fn.recipes import recipe


def test_compressed_schedule_has_warm_up_peak_and_end():
    use = recipe("digits").changed(epochs=10, warmup_epochs=4.0, learning_rate=1.0)
    assert plan_of(use, make_batches(5, 4, 1, 2, 3)).rates == pytest.approx(
        [0.5, 1.0, 1.0, 0.75, 0.25]
    )


BCE = {"loss": "bce", "label_smoothing": 0.0, "monitor": "map"}


@pytest.mark.parametrize(
    ("name", "value", "beside"),
    [
        ("class_weights", "balanced", {}),
        ("head_lr_factor", 0.5, {}),
        ("layer_decay", 0.5, {}),
        ("freeze", "stem", {}),
        ("train_only", "fc", {}),
        ("sync_batchnorm", True, {}),
        ("multi_label", True, BCE),
    ],
)
def test_settings_the_ladder_cannot_compare_are_rejected(name, value, beside, raises_line):
    use = recipe("imagenet_resnet50_v1").changed(**{name: value}, **beside)
    fix = "omit these, or give another recipe"
    with raises_line("recipe: the ladder does not compare", f"{name} {value!r}", fix):
        plan_of(use, make_batches(1, 4, 1, 2, 3))


def test_the_ladders_average_has_no_warm_up():
    batches = make_batches(1, 4, 1, 2, 3)
    use = recipe("digits").changed(ema=0.9, ema_warmup=True)
    assert plan_of(use, batches).average == AveragePlan(0.9, every=1, start=0)
    assert plan_of(recipe("digits"), batches).average is None


def test_the_dropout_of_a_recipe_is_listed():
    words = "dropout is 0 on both sides; the recipe has dropout=0.1, drop_path=0.05"
    for fields, notes in ({"dropout": 0.1, "drop_path": 0.05}, [words]), ({}, []):
        plan = plan_of(recipe("digits").changed(**fields), make_batches(1, 4, 1, 2, 3))
        assert dropout_notes(True, (), plan) == notes


def test_batches_repeat_by_seed_with_class_patterns():
    batches = make_batches(40, 16, 3, 8, 4, seed=5)
    first = batches[0][0]
    assert first.tobytes() == make_batches(1, 16, 3, 8, 4, seed=5)[0][0].tobytes()
    assert first.tobytes() != make_batches(1, 16, 3, 8, 4, seed=6)[0][0].tobytes()
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert (images.shape, images.dtype) == ((40 * 16, 3, 8, 8), np.float32)
    assert labels.dtype == np.int32
    assert set(labels) == {0, 1, 2, 3}
    means = np.stack([images[labels == label].mean(0).ravel() for label in range(4)])
    # The nearest mean is of the class; the values have the variance of pattern and noise, 2 · 0.7².
    nearest = ((images.reshape(len(images), 1, -1) - means) ** 2).sum(2).argmin(1)
    assert (nearest == labels).mean() > 0.99
    assert images.var() == pytest.approx(2 * 0.7**2, rel=0.1)


X, Y = np.zeros((8, 1, 2, 2), np.float32), np.zeros(8, np.int32)


@pytest.mark.parametrize(
    ("batches", "accumulate", "words"),
    [
        (
            [],
            1,
            (
                "batches: there are none",
                "give a list with one pair (inputs, labels) for each update",
            ),
        ),
        ((X, Y), 1, ("batches: batch 0 is ndarray", "give a pair (inputs, labels)")),
        (
            [(X, Y[:6])],
            2,
            ("accumulate: a batch has 8 inputs, 6 labels", "equal length, or set accumulate to 1"),
        ),
        (
            [(X, Y), (X[:4], Y[:4])],
            1,
            (
                "inputs is float32 [4, 1, 2, 2] in batch 1, but float32 [8, 1, 2, 2] in batch 0",
                "batches alike",
            ),
        ),
        (
            [(X, Y), ({"a": X}, Y)],
            1,
            ("inputs is missing in batch 1", "but float32 [8, 1, 2, 2]", "batches alike"),
        ),
        ([(X, Y)], 3, ("accumulate: 3", "does not divide batch size 8", "give a divisor of 8")),
        (
            [({"mask": X.astype(np.float64)}, Y)],
            1,
            ("inputs mask of batch 0 is an array of float64", "of float32"),
        ),
        (
            [(X, [1, 2])],
            1,
            (
                "batches: labels 0 of batch 0 is int",
                "give a NumPy array of float32, integers or bool",
            ),
        ),
    ],
)
def test_batches_that_do_not_fit_are_rejected(batches, accumulate, words, raises_line):
    with raises_line(*words):
        plan_of(recipe("digits"), batches, accumulate)


def test_trees_are_listed_mapped_and_split():
    tree = {"ids": X, "more": (Y, [Y + 1])}
    assert list(named_leaves(tree, "inputs")) == ["inputs ids", "inputs more 0", "inputs more 1 0"]
    assert list(named_leaves(X, "inputs")) == ["inputs"]
    assert map_tree(len, tree) == {"ids": 8, "more": (8, (8,))}
    parts = split((np.arange(6), {"y": np.arange(6) * 10}), 3)
    np.testing.assert_equal(parts[2], ([4, 5], {"y": [40, 50]}))
    assert len(parts) == 3


def test_samples_are_repeated_and_mixed_by_the_recipe():
    """How two images are mixed: tests/data/test_mix.py."""
    batches = make_batches(2, 8, 3, 8, 5)
    plain, classes = batches[0]
    use = recipe("cifar10_resnet18").changed(repeats=2, mixup=0.0, cutmix=0.0, batch_size=8)
    images, labels = recipe_batches(use, batches, 5, 0)[0]
    assert images[:4].tobytes() == images[4:].tobytes() == plain[:4].tobytes()
    assert labels.tolist() == [*classes[:4]] * 2
    mixing = use.changed(repeats=1, mixup=0.4)
    mixed = recipe_batches(mixing, batches, 5, 0)
    for update, (images, labels) in enumerate(mixed):
        drawn = draw_mixing(np.random.default_rng([0, 21, update]), 0.4, 0.0, use.mix_switch, 8, 8)
        np.testing.assert_equal((images, labels), mix(*batches[update], 5, drawn))
    binary = mixing.changed(loss="bce", label_threshold=0.2)
    for (_, labels), (_, soft) in zip(recipe_batches(binary, batches, 5, 0), mixed, strict=True):
        assert labels.dtype == np.float32
        assert labels.tolist() == (soft > 0.2).tolist()
