"""Which operations a policy picks: torchvision's spaces, each choice as likely, from the generator alone."""

from collections import Counter

import numpy as np
import pytest
from resnet_fn.data.photos.operations import OPERATIONS
from resnet_fn.data.photos.policies import CHOICE, PAIRS, choose, magnitude

from resnet_fn.config.recipe import Recipe

RECIPE = Recipe(dataset="imagefolder")


def picks(count, **fields):
    recipe = Recipe(dataset="imagefolder", **fields)
    return [choose(recipe, 224, np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize("size", [24, 160, 176, 224, 299])
def test_magnitudes_are_torchvisions(size, torchvision):
    module = torchvision.transforms.autoaugment
    spaces = {
        "trivialaugment": module.TrivialAugmentWide()._augmentation_space(31),
        "randaugment": module.RandAugment()._augmentation_space(31, (size, size)),
        "autoaugment": module.AutoAugment()._augmentation_space(10, (size, size)),
    }
    for policy, space in spaces.items():
        for name, (values, signed) in space.items():
            levels = range(len(values)) if values.ndim else [0]
            expected = [float(values[level]) if values.ndim else 0.0 for level in levels]
            ours = [magnitude(name, level, size, policy) for level in levels]
            np.testing.assert_array_max_ulp(np.float32(ours), np.float32(expected), 1)  # torch's hangs on the CPU
            assert [int(value) for value in ours] == [int(value) for value in expected], (policy, name)
            assert signed == (name[:5] in ("Shear", "Trans") or name in ("Rotate", *CHOICE[6:10]))
        assert set(CHOICE) == {"Identity", *space} - {"Invert"}


def test_autoaugments_pairs_are_torchvisions(torchvision):
    module = torchvision.transforms.autoaugment
    theirs = module.AutoAugment()._get_policies(module.AutoAugmentPolicy.IMAGENET)
    ours = [
        tuple((name, float(share), int(level[0]) if level else None) for name, share, *level in pair) for pair in PAIRS
    ]
    assert ours == theirs


def test_trivialaugment_takes_one_operation_each_as_likely_at_any_strength():
    chosen = picks(5600, policy="trivialaugment")
    assert {len(operations) for operations in chosen} == {1}
    counts = Counter(operations[0][0] for operations in chosen)
    assert set(counts) == set(CHOICE)
    assert 320 < min(counts.values()) <= max(counts.values()) < 480  # 400 each, standard deviation 19
    rotations = [operations[0][1] for operations in chosen if operations[0][0] == "Rotate"]
    assert abs(np.mean(rotations)) < 12  # both ways
    assert np.max(np.abs(rotations)) == 135
    assert len(set(np.abs(rotations))) == 31


def test_randaugment_has_one_strength_or_a_normal_one_for_each_operation():
    chosen = picks(500, policy="randaugment", policy_ops=3, policy_magnitude=12)
    assert {len(operations) for operations in chosen} == {3}
    assert {abs(value) for operations in chosen for name, value in operations if name == "Rotate"} == {12.0}
    noisy = picks(3000, policy="randaugment", policy_magnitude=12, policy_noise=1.5)
    levels = [abs(value) for operations in noisy for name, value in operations if name == "Rotate"]  # degrees = levels
    assert np.mean(levels) == pytest.approx(12, abs=0.3)
    assert np.std(levels) == pytest.approx(1.5, abs=0.25)
    widest = picks(300, policy="randaugment", policy_magnitude=30, policy_noise=30.0)
    assert all(abs(value) <= 30 for operations in widest for name, value in operations if name == "Rotate")


def test_autoaugment_leaves_operations_out_as_often_as_its_pairs_say():
    chosen = picks(5000, policy="autoaugment")
    expected = sum(float(share) for pair in PAIRS for _, share, *_ in pair) / 25
    assert np.mean([len(operations) for operations in chosen]) == pytest.approx(expected, abs=0.04)
    assert {name for operations in chosen for name, _ in operations} <= set(OPERATIONS)


def test_no_policy_is_no_operation_and_the_generator_decides_alone():
    assert picks(5) == [[]] * 5
    assert picks(50, policy="trivialaugment") == picks(50, policy="trivialaugment")
